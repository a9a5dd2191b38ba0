// The door between native threads and the control plane, crossed once per batch.
//
// Native threads post events; the control plane is woken through a timerfd, takes all that
// are there and answers those that have a ticket. A caller waits for its answer no longer
// than its deadline; an answer that comes later finds its ticket gone and is dropped. Records that
// nobody waits for, as withdrawals of evicted pages, are collected in one event, and it is woken
// some milliseconds later: in a full pool every set evicts. The queue is bounded in events and
// bytes: at the bound an event with a ticket is refused at once (the caller goes on without), and
// withdrawals are dropped with `lost_updates` set, which makes the control plane resync its
// streams.
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
#include "common/types.h"

namespace peercached {

enum class EventKind : uint8_t {
  publish = 1,  // payload: RecordRow[], in order; withdrawals among them. Ticket: somebody waits
  lookup = 2,   // payload: Digest[]; answer: RecordRow[] with local holder indices
  remove = 3,   // payload: RemovalQuestion: remove in the whole cluster; answer: RemovalAnswer
  clear = 4,  // payload: u32 user of the worker, the namespace's name; answer: text, what could not
              // be reached
  peer_trouble = 5,  // payload: PeerTrouble
  lost_updates = 6,  // withdrawals were dropped: resync
  // payload: u16 holder, 6 zero bytes, u64 channel number, ChannelEnd, u32 closed[]; answered by
  // Engine::channel_connected or channel_refused
  connect_channel = 7,
  // payload: u16 holder, 6 zero bytes, Digest[]. With a ticket a reader waits; answer: RecordRow[]
  // of those in its pool now, and withdrawals of those that it has not got. Without: they are
  // warmed.
  promote = 8,
};

// Followed by a text for people.
struct PeerTrouble {
  Incarnation incarnation = 0;
  HolderIndex holder = kNoHolder;
  bool token_unknown = false;
  uint8_t reserved[5] = {};
};
static_assert(sizeof(PeerTrouble) == 16);

// Followed by the digests to remove, which are of that namespace in that epoch.
struct RemovalQuestion {
  Digest namespace_id;
  uint64_t epoch = 0;
};

// Followed by the digests that were held, and a text for the worker's log.
struct RemovalAnswer {
  // ok, error, removing, deadline; stale: the namespace was cleared meanwhile, ask again
  uint32_t status = static_cast<uint32_t>(PageStatus::deadline);
  uint32_t held = 0;
};

struct Event {
  EventKind kind;
  uint64_t ticket = 0;  // 0: nobody waits
  TimePoint deadline;
  std::vector<std::byte> payload;
};

inline constexpr size_t kBehindEvents = 64;
inline constexpr size_t kBehindBytes = 256 << 10;
// For records that nobody waits for, the control plane is woken after so long, or for so many
// bytes.
inline constexpr auto kToldWithin = std::chrono::milliseconds(50);
inline constexpr size_t kToldTogether = 128 << 10;

class ControlQueue {
 public:
  ControlQueue(size_t events_max, size_t bytes_max);
  ~ControlQueue();

  int event_fd() const { return event_fd_; }

  // --- native threads
  // False: refused, at the bound or once closed.
  bool post(EventKind kind, std::span<const std::byte> payload);
  // RecordRow[] that nobody waits for, in one event with those before. They keep their place in the
  // queue.
  void tell(std::span<const std::byte> rows);
  // One question in flight: posted when made, waited for at leisure, so that a caller may go
  // on with its next piece of work meanwhile.
  class Question {
   public:
    Question(ControlQueue& queue, EventKind kind, std::span<const std::byte> payload,
             Deadline deadline);
    ~Question();
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;

    // nullopt at the deadline, at the queue's bound, once closed or given up.
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
  void give_up(uint64_t ticket);  // there will be no answer: who waits goes on without
  void close();                   // wakes all who wait, refuses further events

  bool behind() const;      // more waits for the control plane than it takes at a time
  uint64_t posted() const;  // all events that the control plane was given
  uint64_t dropped() const;

 private:
  enum class Alarm : uint8_t { none, later, now };

  void wake(Alarm alarm);                             // under the mutex, like the next
  bool refuse(EventKind kind, size_t payload_bytes);  // at a bound

  const size_t events_max_;
  const size_t bytes_max_;
  int event_fd_;  // a timerfd
  mutable std::mutex mutex_;
  std::deque<Event> events_;
  size_t bytes_ = 0;  // of the payloads in it
  std::unordered_map<uint64_t, Question*> questions_;
  uint64_t next_ticket_ = 1;
  uint64_t posted_ = 0, dropped_ = 0;
  Alarm alarm_ = Alarm::none;
  bool lost_updates_ = false;
  bool closed_ = false;
};

}  // namespace peercached
