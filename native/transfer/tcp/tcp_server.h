// READ over TCP: the holder's side. Serves pages of the pool to authenticated peers, and holds
// pages there for a while on request.
//
// One thread serves each channel until its first `follow`; one more thread serves all followers. At
// most `channels_max` channels are admitted; others are refused and counted. Connections before
// hello have their own limits, in all and per address. So a client that only connects keeps nobody
// out.
//
// For each request the server pins all slots and checks their generations before it sends the first
// byte, so the layout of the answer is fixed. The slots stay pinned until the socket has the last
// byte, or the channel is dead. A peer must not hold pins for long. It is cut off if it does not
// take its bytes within `stall_timeout_ms`, plus the time that a slow network needs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/counter.h"
#include "common/notices.h"
#include "pool/pool.h"
#include "transfer/tcp/frames.h"

namespace peercached {

namespace tcp {
class FollowSource;
}  // namespace tcp

struct TcpServerConfig {
  std::string host;
  uint16_t port = 0;  // 0: any
  Incarnation incarnation = 0;
  unsigned channels_max = 1152;          // admitted; 9 (8 for reads, 1 to follow) for 128 peers
  unsigned channels_per_peer_max = 128;  // admitted, of one peer
  unsigned greeting_max = 256;           // not yet admitted
  unsigned greeting_per_host_max = 64;
  bool sealed = false;  // TLS, with the reader's token as key (seal.h)
  int hello_timeout_ms = 2000;
  int stall_timeout_ms = 5000;
  int idle_timeout_ms = 60'000;  // without a request; a reader with a new request reconnects
  Notices* notices = nullptr;    // must outlive the server
};

struct TcpServerStats {
  Counter channels, accepted, refused, bad_hellos, bad_frames;
  Counter pages, bytes, stale, stalls;
  // `crowded`, part of `refused`: too many of one address or peer. `unauthorised` and
  // `late_hellos`, parts of `bad_hellos`: no valid token, or too late.
  Counter crowded, unauthorised, late_hellos;
  Counter kernel_sealed;  // channels, part of `accepted`: the kernel encrypts their pages
};

class TcpServer {
 public:
  // Returns the token that a handshake gave to this peer; empty: none, so it may not read. Called
  // once per channel, on the channel's thread. Must be fast and thread safe.
  using TokenOf = std::function<std::string(const std::string& node_id, Incarnation)>;

  // These are called on the channels' threads.
  //
  // Keeps pages in the pool for a while. Sets held[i] = 1 for pages that are there and stay;
  // held[i] is 0 before.
  using Hold =
      std::function<void(std::span<const Digest>, uint32_t hold_ms, std::span<uint8_t> held)>;

  // Looks up these digests in this node's shard, for a reader with that view. `located` is empty
  // before.
  using Lookup =
      std::function<void(std::span<const Digest>, uint64_t view_number, Located& located)>;

  // Takes changes of that holder's records. Returns where this node stands in the holder's log.
  using Push = std::function<uint64_t(Incarnation holder, const FeedPart&)>;

  // `may_read`: whether peers may still read pages. The others answer all other requests. `follow`
  // answers followers (follow_server.h).
  struct Answers {
    std::function<bool()> may_read = [] { return true; };
    Hold hold;
    Lookup lookup;
    Push push;
    std::shared_ptr<tcp::FollowSource> follow{};
  };

  // Binds and listens. Throws std::runtime_error with the address and the remedy.
  TcpServer(const TcpServerConfig& config, Pool& pool, TokenOf token_of, Answers answers);
  void stop();   // closes the port and all channels, joins all threads
  ~TcpServer();  // stops

  // Also while it stops, and afterwards.
  uint16_t port() const;
  void drop_peer(const std::string& node_id, Incarnation incarnation);  // cuts its channels
  TcpServerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
