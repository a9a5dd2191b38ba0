// A process's attachment to the daemon of its host, and coming back to it.
//
//   attached ── no answer, or the stream ends ──▶ away ── a probe is answered ──▶ attached
//       └──────────────── close ─────────────────────┴──▶ closed
//
// Calls share the idle connections and open more. While the daemon is away, every call returns at
// once. Some of these calls send a probe: a HELLO on a new connection. A later call finds its
// answer. So there is no background thread, which a forked child would not have.
#pragma once

#include <chrono>
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
#include "client/waits.h"

namespace peercached::client {

struct Request {
  ipc::Op op = ipc::Op::ping;
  uint16_t flags = 0;
  uint32_t count = 0;
  // The body, but for the column of region ids, which goes behind the first part.
  std::vector<std::span<const std::byte>> body{};
  std::vector<std::shared_ptr<Segment>> segments{};
  std::vector<uint32_t> segment_of{};  // each page's, as an index; empty: all have the first
  TimePoint end;
  // How long a GET that is given up waits for the end of what is being written; then its segments
  // are in quarantine. None: as long as it takes.
  std::optional<std::chrono::microseconds> silence{};
};

enum class Result : uint8_t { reply, refused, late, away };

struct Reply {
  Result result = Result::away;
  ipc::ErrorCode error = ipc::ErrorCode::none;
  uint32_t value = 0;
  std::string body{};  // or the sentence of a refusal
};

class Session {
 public:
  // What somebody should be told: `loud` if memory is out of use.
  struct Note {
    bool loud = false;
    std::string text;
  };

  Session(std::string path, std::string ns, std::string name);

  // Throws what `waits` throws; the daemon is fenced off then.
  Reply ask(const Request& request, Waits& waits);
  // Tells the daemon of segments that have died, as every ask does, too.
  void sweep(TimePoint end, Waits& waits);
  // Later calls find the daemon away. Waits for the requests of other threads, which have their
  // deadlines; not where this thread is in the middle of a request itself (a signal handler).
  void close(Waits& waits);

  bool closed() const { return closed_; }
  const std::string& last_error() const { return last_error_; }  // empty while there is a daemon
  uint64_t reconnects() const { return reconnects_; }
  std::vector<Note> take_notes() { return std::exchange(notes_, {}); }
  bool has_notes() const { return !notes_.empty(); }

 private:
  // What the daemon knows of us; gone with the daemon, or with our last connection.
  struct Attachment {
    Token token;
    struct Known {
      std::weak_ptr<Segment> segment;
      uint32_t id = 0;            // 0: not known, or refused
      TimePoint refused_until{};  // then it is asked for again
      // Until there is an answer: should nobody take it, the daemon is asked once more for the id.
      Descriptor file{};
      uint64_t bytes = 0;
    };
    std::map<uint64_t, Known> regions{};  // by the segment's number
    std::vector<std::shared_ptr<Connection>> idle{};
    unsigned open = 0, open_max = 64;
    uint64_t deaths_seen = 0;
  };

  // A connection for one call. It goes back when it is idle again, and ends otherwise.
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
  bool probe(TimePoint end, Waits& waits);
  void lose(const std::string& why, std::chrono::microseconds probe_after);
  Reply exchange(Lease& lease, const Request& request, Waits& waits);
  Answer ask_for_id(Lease& lease, int file, uint64_t bytes, TimePoint end, Waits& waits);
  Outcome register_all(Lease& lease, const Request& request, Waits& waits);
  Outcome register_one(Lease& lease, const std::shared_ptr<Segment>& segment, TimePoint end,
                       Waits& waits);
  Outcome sweep_with(Lease& lease, TimePoint end, Waits& waits);
  void give_up(Lease& lease, const Request& request, Waits& waits);
  void note(bool loud, std::string text);
  bool in_this_process() const;

  const std::string path_, ns_, name_;
  const pid_t pid_;
  bool closed_ = false;
  std::shared_ptr<Attachment> attachment_;  // null: none, or none that the daemon knows
  std::vector<std::thread::id> askers_;

  bool away_ = false;
  bool probing_ = false;
  std::shared_ptr<Connection> probe_;  // a HELLO without an answer yet
  TimePoint probe_until_{};            // for so long calls wait for it
  TimePoint probe_at_{};
  std::chrono::microseconds pause_{};

  std::string last_error_;
  uint64_t reconnects_ = 0;
  std::vector<Note> notes_;
  std::minstd_rand dice_;
};

}  // namespace peercached::client
