// The door between native threads and the control plane, crossed once per batch.
//
// Native threads post events; the control plane is woken through an eventfd, takes all that
// are there and answers those that have a ticket. A caller waits for its answer no longer
// than its deadline; an answer that comes later finds its ticket gone and is dropped. The
// queue is bounded: at the bound an event with a ticket is refused at once (the caller goes on
// without), and withdrawals are dropped with `lost_updates` set, which makes the control
// plane resync its streams.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

enum class EventKind : uint8_t {
  publish = 1,       // payload: RecordRow[], in order; withdrawals among them. Ticket: somebody waits
  lookup = 2,        // payload: Digest[]; answer: RecordRow[] with local holder indices
  remove = 3,        // payload: Digest[]: remove at all other holders; answer: RecordRow[] removed
  clear = 4,         // payload: the namespace's name; answer: text, what could not be reached
  peer_trouble = 5,  // payload: u16 holder, u64 incarnation, text
  lost_updates = 6,  // withdrawals were dropped: resync
};

struct Event {
  EventKind kind;
  uint64_t ticket = 0;  // 0: nobody waits
  TimePoint deadline;
  std::vector<std::byte> payload;
};

class ControlQueue {
 public:
  explicit ControlQueue(size_t events_max);
  ~ControlQueue();

  int event_fd() const { return event_fd_; }

  // --- native threads
  void post(EventKind kind, std::span<const std::byte> payload);
  // Posts and waits; nullopt at the deadline, at the bound, or once closed.
  std::optional<std::vector<std::byte>> ask(EventKind kind, std::span<const std::byte> payload,
                                            Deadline deadline);

  // --- control plane
  std::vector<Event> take(size_t limit);
  void answer(uint64_t ticket, std::vector<std::byte> payload);
  void close();  // wakes all who wait, refuses further events

  uint64_t dropped() const;

 private:
  struct Waiter {
    std::condition_variable ready;
    std::optional<std::vector<std::byte>> answer;
    bool done = false;
  };

  void wake();

  const size_t events_max_;
  int event_fd_;
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  std::unordered_map<uint64_t, Waiter*> waiters_;
  uint64_t next_ticket_ = 1;
  uint64_t dropped_ = 0;
  bool lost_updates_ = false;
  bool closed_ = false;
};

}  // namespace peercached
