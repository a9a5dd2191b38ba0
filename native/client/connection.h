// One stream to the daemon: a request, its reply.
//
//   asking ── reply ──▶ idle ── send ──▶ asking ──▶ …
//     └──── anything else, or the end ──▶ ended
//
// It is made in `asking`, for it begins with HELLO. It belongs to one call at a time; a call that
// leaves it in `asking` must give it up, for the reply would be taken for the next one's.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/descriptor.h"
#include "client/gate.h"
#include "client/waits.h"
#include "ipc/wire.h"

namespace peercached::client {

using Token = std::array<uint8_t, 16>;

enum class Outcome : uint8_t {
  reply,
  refused,  // by the daemon, with a sentence
  late,     // no reply in time; it can still be received
  lost,     // there is no connection any more
};

struct Answer {
  Outcome outcome = Outcome::lost;
  ipc::ErrorCode error = ipc::ErrorCode::none;
  uint32_t value = 0;
  std::string body{};  // of the reply; else a sentence, if there is one
};

struct Frame {
  ipc::Op op = ipc::Op::ping;
  uint16_t flags = 0;
  uint32_t count = 0;
  std::vector<std::span<const std::byte>> body{};
  int file = -1;  // passed along
};

class Connection {
 public:
  // Connects and sends HELLO, without waiting. Throws std::system_error; EAGAIN: the daemon has
  // taken none of many connections yet, as one does that hangs.
  Connection(const std::string& path, const Token& token, const std::string& ns,
             const std::string& name);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The whole request. The daemon is given until `end`. A result is the end of it: `late`, `lost`.
  Answer ask(const Frame& frame, TimePoint end, Waits& waits);
  // What is left of a reply.
  Answer receive(TimePoint until, Waits& waits);

  bool idle() const { return state_ == State::idle; }
  // Whether the path leads somewhere else by now than when it connected.
  bool has_moved(const std::string& path) const { return place_of(path) != place_; }

  // After anything but a reply or a refusal. Fences the daemon off: of a SET that is under way
  // nothing is kept, and a GET writes no more than the piece that it is writing; once it is
  // `silent` that is over, too.
  void give_up();
  bool silent() const;

  // In a forked child: none of them is its own, and while it held them open, the daemon would not
  // see the parent die.
  static void abandon_all();

 private:
  enum class State : uint8_t { idle, asking, ended };

  static FileIdentity place_of(const std::string& path);
  Answer send(const Frame& frame, TimePoint end, Waits& waits);
  Answer lose(std::string why);
  bool daemon_has_ended() const;

  State state_ = State::idle;
  bool stream_ended_ = false;  // by the daemon
  bool given_up_ = false;
  const pid_t pid_;
  FileIdentity place_;
  pid_t daemon_ = 0;  // 0: not known, it is in another container
  uint64_t daemon_started_ = 0;
  uint16_t op_ = 0;
  uint32_t count_ = 0;
  uint32_t request_id_ = 0;
  std::vector<char> reply_;  // and room for more than one, which the daemon never sends
  size_t received_ = 0;      // bytes of it
  Descriptor socket_;
  Gate gate_;
};

}  // namespace peercached::client
