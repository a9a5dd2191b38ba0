// READ over TCP: the holder's side. Serves pages of the pool to authenticated peers, and holds them
// there for a while when asked to.
//
// One thread per channel, at most `channels_max`; a further connection is refused and counted.
// Those that have not said hello yet have a count of their own, and one per address, so that who
// only connects keeps nobody out.
// For each request all slots are pinned and their generations checked before the first byte
// goes out, so that the layout of the answer is fixed; they stay pinned until the last byte
// is copied into the socket (or the channel is dead). A peer that does not take its bytes
// within `stall_timeout_ms` (and what a slow network may need on top) is cut off, so that it
// cannot hold pins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/notices.h"
#include "pool/pool.h"
#include "transfer/tcp/frames.h"

namespace peercached {

struct TcpServerConfig {
  std::string host;
  uint16_t port = 0;  // 0: any
  Incarnation incarnation = 0;
  unsigned channels_max = 1152;          // that were let in: 8 for reads and a follower's, of 128
  unsigned channels_per_peer_max = 128;  // of them
  unsigned greeting_max = 256;           // that were not yet
  unsigned greeting_per_host_max = 64;
  bool sealed = false;  // TLS, by the token of the reader (seal.h)
  int hello_timeout_ms = 2000;
  int stall_timeout_ms = 5000;
  int idle_timeout_ms = 60'000;  // without a request; the reader connects again when it has one
  Notices* notices = nullptr;    // outlives the server
};

struct TcpServerStats {
  uint64_t channels = 0, accepted = 0, refused = 0, bad_hellos = 0, bad_frames = 0;
  uint64_t pages = 0, bytes = 0, stale = 0, stalls = 0;
  // Of `refused`: of one address or peer too many. Of `bad_hellos`: without a right token; late.
  uint64_t crowded = 0, unauthorised = 0, late_hellos = 0;
};

class TcpServer {
 public:
  // The token that a handshake has given to this peer; empty: none, it may not read. Called once
  // per channel, from the channel's thread. Must be fast and thread safe.
  using TokenOf = std::function<std::string(const std::string& node_id, Incarnation)>;

  // Keeps pages in the pool for a while: held[i] = 1 for those that are there and stay. From the
  // channels' threads; held[i] is 0 before.
  using Hold =
      std::function<void(std::span<const Digest>, uint32_t hold_ms, std::span<uint8_t> held)>;

  // What this node's shard knows of these digests, for a reader with that view. From the channels'
  // threads; `located` is empty before.
  using Lookup =
      std::function<void(std::span<const Digest>, uint64_t view_number, tcp::Located& located)>;

  // Takes records of that holder's pages into this node's shard; whether all of them are there.
  // From the channels' threads.
  using Publish =
      std::function<bool(Incarnation holder, uint64_t fence, std::span<const RecordRow>)>;

  // Tells what has changed in this node's records behind `position`, in parts; waits for as long
  // for news. `tell` is false when the follower cannot be told: the channel is over, as it is when
  // Follow returns false. `sign`: what the follower says of itself. From the channels' threads.
  using Follow =
      std::function<bool(Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                         uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell)>;

  // Whether pages may be read still; what is asked of this node apart from them.
  struct Answers {
    std::function<bool()> may_read = [] { return true; };
    Hold hold;
    Lookup lookup;
    Publish publish;
    Follow follow{};
  };

  // Binds and listens; throws std::runtime_error with the address and the remedy.
  TcpServer(const TcpServerConfig& config, Pool& pool, TokenOf token_of, Answers answers);
  ~TcpServer();  // stops serving and joins all threads

  uint16_t port() const;
  void drop_peer(const std::string& node_id, Incarnation incarnation);  // cuts its channels
  TcpServerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
