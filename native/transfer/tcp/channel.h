// One connection to a peer, seen from the reader: connect, challenge and hello, without ever
// blocking. Once ready it is a plain stream of requests and answers (lane.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/stream.h"
#include "transfer/tcp/tcp_engine.h"

namespace peercached::tcp {

// How this node connects to a peer: its address, and its name.
struct Dial {
  // Without the peer's part. Throws std::invalid_argument for a source address that does not
  // resolve.
  explicit Dial(const TcpEngineConfig& config);
  // The same for one peer. Throws std::invalid_argument for a token of a wrong length.
  Dial to(const PeerEndpoint& endpoint) const;

  Address address;
  Address source;          // bytes == 0: any
  std::string unresolved;  // why there is no address; empty if there is one
  Hello hello;             // the proof is still missing
  std::string token;       // from the peers' handshake
  bool sealed = false;     // the peer's data port speaks TLS
  int connect_timeout_ms = 0;
};

class Channel {
 public:
  enum class State { connecting, greeting, ready, broken };

  explicit Channel(const Dial& dial);

  State state() const { return state_; }
  int fd() const { return stream_.fd(); }
  Stream& stream() { return stream_; }
  short poll_events()
      const;  // the events that proceed(), or the user of a ready channel, waits for
  // When it must be ready; TimePoint::max() once it is.
  TimePoint greeted_by() const;

  // Continues connect or hello; call it when the socket has one of poll_events().
  void proceed();
  // Like proceed(), as far as possible now: for a channel that nobody has polled for a while.
  void catch_up();
  // Breaks the channel if greeted_by() has passed.
  void check_time(TimePoint now);
  // Why the channel is broken; empty while it is not.
  const Trouble& trouble() const { return trouble_; }

  // True if an earlier read used the channel. Its connection may have died while it was idle.
  bool pooled() const { return pooled_; }
  void set_pooled() { pooled_ = true; }
  uint64_t next_request() { return ++requests_; }

  // Frames that wait to be sent: append to them, then call flush(). False: see errno.
  std::vector<std::byte>& unsent() { return unsent_; }
  bool flush();

  void shut() const { stream_.shut(); }

 private:
  void start_connect(const Dial& dial);
  void connected();
  void receive_reply();
  void read_reply();
  void take_challenge(std::span<const std::byte> body);
  void take_reply(FrameKind kind, std::span<const std::byte> body);
  void fail(Trouble trouble);

  Stream stream_;
  State state_ = State::connecting;
  Hello hello_;
  std::string token_;
  bool sealed_;
  int connect_timeout_ms_;
  TimePoint greeted_by_;
  Trouble trouble_;
  bool pooled_ = false;
  uint64_t requests_ = 0;
  std::vector<std::byte> unsent_;
  size_t unsent_from_ = 0;
  bool challenged_ = false;
  std::vector<std::byte> reply_;
  size_t reply_have_ = 0;
};

}  // namespace peercached::tcp
