// The queue between native threads and the control plane (Python), crossed once per batch.
//
// Native threads post events. An eventfd wakes the control plane, which takes the waiting events
// and answers those that have a ticket. A caller waits for its answer until its deadline. A later
// answer finds no ticket and is dropped.
//
// The queue is bounded in events and bytes. At the bound an event is refused at once, and its
// caller goes on without an answer.
#pragma once

#include <chrono>
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
#include "engine/control/events.h"

namespace peercached {

struct Event {
  EventKind kind;
  uint64_t ticket = 0;  // 0: nobody waits
  TimePoint deadline;
  std::vector<std::byte> payload;
};

class ControlQueue {
 public:
  ControlQueue(size_t events_max, size_t bytes_max);
  ~ControlQueue();

  int event_fd() const { return event_fd_; }

  // --- native threads
  // False: refused, because the queue is full or closed.
  bool post(EventKind kind, std::span<const std::byte> payload);
  // One question in flight. The constructor posts it, and wait() waits, so the caller can work in
  // between.
  class Question {
   public:
    Question(ControlQueue& queue, EventKind kind, std::span<const std::byte> payload,
             Deadline deadline);
    ~Question();
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;

    // nullopt: no answer until the deadline, the queue was full or closed, or the question was
    // given up.
    std::optional<std::vector<std::byte>> wait();

   private:
    friend class ControlQueue;
    ControlQueue& queue_;
    const Deadline deadline_;
    uint64_t ticket_ = 0;  // 0: refused
    std::condition_variable ready_;
    std::optional<std::vector<std::byte>> answer_;
    bool done_ = false;
  };

  std::optional<std::vector<std::byte>> ask(EventKind kind, std::span<const std::byte> payload,
                                            Deadline deadline) {
    return Question(*this, kind, payload, deadline).wait();
  }

  // --- control plane
  std::vector<Event> take(size_t limit);
  void answer(uint64_t ticket, std::vector<std::byte> payload);
  void give_up(uint64_t ticket);  // no answer will come: the caller goes on without
  void close();                   // wakes all waiting callers, refuses further events

  uint64_t posted() const;  // events queued since start
  uint64_t dropped() const;

 private:
  void wake();                        // requires mutex_, like the next two
  bool refuse(size_t payload_bytes);  // true: the queue is full
  void push(EventKind kind, uint64_t ticket, TimePoint deadline,
            std::span<const std::byte> payload);

  const size_t events_max_;
  const size_t bytes_max_;
  int event_fd_;
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  size_t bytes_ = 0;  // of the queued payloads
  std::unordered_map<uint64_t, Question*> questions_;
  uint64_t next_ticket_ = 1;
  uint64_t posted_ = 0, dropped_ = 0;
  bool closed_ = false;
};

}  // namespace peercached
