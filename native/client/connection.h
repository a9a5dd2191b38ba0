// One connection to the daemon: a request and its reply, one at a time.
//
//   asking ── reply ──▶ idle ── send ──▶ asking ──▶ …
//     └──── anything else, or the end ──▶ ended
//
// A new connection is in `asking`, because it begins with HELLO. One call uses it at a time. A call
// that ends while the connection is in `asking` must give it up: the next call would read the wrong
// reply.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/descriptor.h"
#include "client/gate.h"
#include "client/waits.h"
#include "ipc/wire.h"

namespace peercached::client {

using ipc::Token;

enum class Outcome : uint8_t {
  reply,
  refused,  // by the daemon, with a sentence
  late,     // no reply in time; it can still be received
  lost,     // there is no connection any more; of a Session: the daemon is away
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
  uint32_t took = 0;
  std::vector<std::span<const std::byte>> body{};
  int file = -1;  // a descriptor to pass, or -1
  // When the daemon is to answer, if that is before our own deadline.
  TimePoint answer_by = TimePoint::max();
};

class Connection {
 public:
  // Connects and sends HELLO, without waiting. Throws std::system_error. EAGAIN means that many
  // connections wait for the daemon to accept them, so it hangs.
  Connection(const std::string& path, const Token& token, const std::string& ns,
             const std::string& name);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends the request and receives the reply. The daemon has until `end`. After `late` or `lost`
  // the connection is of no further use.
  Answer ask(const Frame& frame, TimePoint end, Waits& waits);
  // Receives the rest of a reply.
  Answer receive(TimePoint until, Waits& waits);

  bool idle() const { return state_ == State::idle; }
  // Whether the daemon has told of stages of this request.
  bool told_of_stages() const { return told_of_stages_; }
  // From the answer to HELLO; none before that.
  const std::optional<Token>& token() const { return token_; }
  // Whether the daemon takes requests with this feature (ipc::Features).
  bool has(ipc::Features feature) const { return (features_ & feature) != 0; }
  // The daemon's version, as it names it.
  const std::string& daemon_version() const { return daemon_version_; }
  // Whether another socket is at the path now than the one it connected to.
  bool has_moved(const std::string& path) const { return place_of(path) != place_; }

  // To be called after anything but a reply or a refusal. Sets the fence: the daemon stores nothing
  // of a SET in progress, and a GET writes at most the piece that it is writing. When silent()
  // returns true, that piece is written, too.
  void give_up();
  bool given_up() const { return given_up_; }
  bool silent() const;

  // Closes all connections, in a forked child. They belong to the parent. If the child kept them
  // open, the daemon would not notice the parent's death.
  static void abandon_all();

 private:
  enum class State : uint8_t { idle, asking, ended };

  static FileIdentity place_of(const std::string& path);
  Answer send(const Frame& frame, TimePoint end, Waits* waits);  // null: without waiting
  void take_hello(const std::string& answer);
  bool tells_of_stage(const ipc::ReplyHeader& header) const;
  Answer lose(std::string why);

  State state_ = State::idle;
  bool given_up_ = false, told_of_stages_ = false;
  mutable TimePoint hung_up_at_{};
  const pid_t pid_;
  FileIdentity place_;
  pid_t daemon_ = 0;  // 0: not known, because it is in another container
  uint64_t daemon_started_ = 0;
  uint16_t op_ = 0;
  uint32_t count_ = 0;
  uint32_t request_id_ = 0;
  std::optional<Token> token_;
  uint32_t features_ = 0;  // of the daemon
  std::string daemon_version_;
  std::vector<char> reply_;
  size_t received_ = 0;  // bytes of reply_
  Descriptor socket_;
  Gate gate_;
};

}  // namespace peercached::client
