// One connection to a peer, seen from the reader: connect, challenge and hello, without ever
// blocking. Once ready it is a plain stream of requests and answers (lane.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/stream.h"
#include "transfer/trouble.h"

namespace peercached::tcp {

struct Dial {
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
  short poll_events() const;  // the events that proceed() waits for
  Deadline greeted_by() const { return greeted_by_; }

  // Continues connect or hello; call it when the socket has one of poll_events().
  void proceed();
  // Like proceed(), as far as possible now: for a channel that nobody has polled for a while.
  void catch_up();
  void time_out();  // call it when greeted_by() has passed
  // Why the channel is broken; empty while it is not.
  const Trouble& trouble() const { return trouble_; }

  // True if an earlier read used the channel. Its connection may have died while it was idle.
  bool pooled() const { return pooled_; }
  void set_pooled() { pooled_ = true; }
  uint64_t next_request() { return ++requests_; }

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
  Deadline greeted_by_;
  Trouble trouble_;
  bool pooled_ = false;
  uint64_t requests_ = 0;
  bool challenged_ = false;
  std::vector<std::byte> reply_;
  size_t reply_have_ = 0;
};

}  // namespace peercached::tcp
