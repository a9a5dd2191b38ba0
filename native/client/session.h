// A process's attachment to the daemon of its host. It reattaches when the daemon is back.
//
//   attached ── no answer, or the stream ends ──▶ away ── a probe is answered ──▶ attached
//       └──────────────── close ─────────────────────┴──▶ closed
//
// Calls share the idle connections and open more. While the daemon is away, every call returns at
// once. Some of these calls send a probe: a HELLO on a new connection. A later call finds its
// answer. So there is no background thread, which a forked child would not have.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/connection.h"
#include "client/segment.h"
#include "client/slots.h"
#include "client/waits.h"

namespace peercached::client {

// Ends requests from another call: those that wait for pages, so that their answers may take long.
class Cancel {
 public:
  Cancel() = default;
  // Cancelled, too, when `whole` is.
  explicit Cancel(std::shared_ptr<const Cancel> whole) : whole_(std::move(whole)) {}

  // All requests with this Cancel end as if the daemon were away, and later ones, too.
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_ || (whole_ && whole_->cancelled()); }

 private:
  bool cancelled_ = false;
  const std::shared_ptr<const Cancel> whole_;
};

struct Request {
  ipc::Op op = ipc::Op::ping;
  uint16_t flags = 0;
  uint32_t count = 0;
  // The body without the column of region ids, which is inserted behind the first part.
  std::vector<std::span<const std::byte>> body{};
  std::vector<std::shared_ptr<Segment>> segments{};
  std::vector<uint32_t> segment_of{};  // an index for each page; empty: all are in the first one
  // The caller's span (CallerSpan), or empty. A daemon that does not know spans is not told of it.
  std::span<const std::byte> caller{};
  TimePoint end;
  // When the daemon gives up, if that is before `end`. Until `end` it may be late with its answer
  // and does not count as away.
  TimePoint answer_by = TimePoint::max();
  // How long a GET that is given up waits until the daemon has written its last piece. After that
  // its segments are in quarantine. nullopt: it waits as long as it takes.
  std::optional<std::chrono::microseconds> silence{};
  std::shared_ptr<Cancel> cancel{};
};

class Session {
 public:
  // A sentence for the log. `loud`: memory cannot be used.
  struct Note {
    bool loud = false;
    std::string text;
  };

  Session(std::string path, std::string ns, std::string name);

  // Throws what `waits` throws, after it has fenced the daemon off.
  Answer ask(const Request& request, Waits& waits);
  // A call of the client took so long. A later request tells the daemon.
  void note_took(ipc::TookOp op, std::chrono::microseconds time);
  // Unregisters segments that have died at the daemon. Every ask does that, too.
  void sweep(TimePoint end, Waits& waits);
  // A place among the calls that wait for pages: they have half of the connections, so that others
  // go on. Null: none was free in time, or the wait is over.
  std::unique_ptr<Slot> place_to_wait(TimePoint end, const Cancel* cancel, Waits& waits);
  // Later calls find the daemon away, and requests with a Cancel end.
  void stop();
  // As stop(). Waits for the requests of other threads, until their
  // deadlines. It does not wait if this thread itself is inside a request (in a signal handler).
  void close(Waits& waits);

  bool closed() const { return closed_; }
  const std::string& last_error() const { return last_error_; }  // empty while there is a daemon
  uint64_t reconnects() const { return reconnects_; }
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }
  bool has_notes() const { return !notes_.empty(); }

 private:
  static constexpr unsigned kConnectionsMax = 64;

  // Our attachment, as the daemon knows it. It ends with the daemon or with our last connection.
  struct Attachment {
    Token token;
    struct Known {
      std::weak_ptr<Segment> segment;
      uint32_t id = 0;            // 0: not known, or refused
      TimePoint refused_until{};  // not registered again before that
      // Kept until the daemon has answered. If the call is interrupted before, the file is
      // registered once more to learn the id.
      Descriptor file{};
      Registration registration{};
    };
    std::map<uint64_t, Known> regions{};  // by the segment's number
    std::vector<std::shared_ptr<Connection>> idle{};
    unsigned open = 0, open_max = kConnectionsMax;
    TimePoint crowded_until{};  // the daemon had no room for more: not tried again before that
    uint64_t deaths_seen = 0;
  };

  // A connection for one call. If it is idle afterwards, other calls use it again.
  struct Lease {
    Session* session = nullptr;
    std::shared_ptr<Attachment> attachment;
    std::shared_ptr<Connection> connection;
    Lease() = default;
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept = default;
    ~Lease();
  };

  enum class Taken : uint8_t { connection, late, away };

  Taken take(Lease& lease, TimePoint end, Waits& waits);
  Taken open(Lease& lease, TimePoint end, Waits& waits);
  void set_open_max(Attachment& attachment, unsigned open_max);
  bool probe(TimePoint end, Waits& waits);
  void lose(const std::string& why, std::chrono::microseconds probe_after);
  // The caller gives up the connection if it is not idle at the end.
  Answer exchange(Lease& lease, const Request& request, Waits& waits);
  Answer ask_for_id(Lease& lease, int file, const Registration& what, TimePoint end, Waits& waits);
  Outcome register_all(Lease& lease, const Request& request, Waits& waits);
  Outcome register_one(Lease& lease, const std::shared_ptr<Segment>& segment, TimePoint end,
                       Waits& waits);
  static std::vector<uint32_t> ids_of_pages(const Attachment& attachment, const Request& request);
  // Another thread may have unregistered a file's region while this one registered the file again:
  // both have the same id. True: there were such ids, and register_all() asks for new ones.
  static bool forget_unknown_ids(Attachment& attachment, const Request& request,
                                 const std::vector<uint32_t>& ids, const std::string& statuses);
  Outcome sweep_with(Lease& lease, TimePoint end, Waits& waits);
  // Whether nobody wants the answer of a request with this Cancel any more.
  bool is_over(const Cancel* cancel) const {
    return cancel != nullptr && (closed_ || cancel->cancelled());
  }
  // `silence`: the longest wait for the daemon's writes to end; nothing: without limit.
  void give_up_unless_idle(const Lease& lease, const Request& request,
                           std::optional<std::chrono::microseconds> silence, Waits& waits);
  void note(bool loud, std::string text);
  bool in_this_process() const { return pid_ == ::getpid(); }

  const std::string path_, ns_, name_;
  const pid_t pid_;
  bool closed_ = false;
  std::shared_ptr<Attachment> attachment_;  // null if not attached
  std::vector<std::thread::id> askers_;
  const std::shared_ptr<Slots> places_ = std::make_shared<Slots>(kConnectionsMax / 2);

  bool away_ = false;
  bool probing_ = false;
  std::shared_ptr<Connection> probe_;  // a HELLO without an answer yet
  TimePoint probe_until_{};            // calls wait for its answer until then
  TimePoint probe_at_{};
  std::chrono::microseconds pause_{};

  std::string last_error_;
  uint64_t reconnects_ = 0;
  std::vector<Note> notes_;
  std::deque<uint32_t> took_;  // as in ipc::RequestHeader
  std::minstd_rand dice_;
};

}  // namespace peercached::client
