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
#include "common/types.h"

namespace peercached {

// Python never sees these numbers, nor the layouts of the payloads: native/bindings/
// events_binding.cc turns each event into a tuple of its name and its fields.
enum class EventKind : uint8_t {
  remove = 3,  // cluster-wide removal; payload: RemovalQuestion; answer: RemovalAnswer
  // payload: u32 user of the worker, the namespace's name; answer: text, names unreachable nodes
  clear = 4,
  peer_trouble = 5,  // payload: PeerTrouble
  // payload: ChannelQuestion; answered by Transports::channel_connected or channel_refused
  connect_channel = 7,
  // payload: PromoteQuestion. With a ticket a reader waits. The answer is RecordRow[]: records of
  // pages now in the holder's pool, and withdrawals of pages that it does not have. A row without
  // flags: its disk failed. Without a ticket the holder warms the pages.
  promote = 8,
  // payload: PinQuestion; answer: a PageStatus byte for each digest, then a text for the worker's
  // log
  pin = 9,
  follower_moved = 10,  // a follower that was behind (RecordFeed::behind) has asked again
};

// Followed by a human-readable text.
struct PeerTrouble {
  Incarnation incarnation = 0;
  HolderIndex holder = kNoHolder;
  bool token_unknown = false;
  uint8_t reserved[5] = {};
};
static_assert(sizeof(PeerTrouble) == 16);

// Followed by the digests to remove, made in this epoch of the namespace.
struct RemovalQuestion {
  Digest namespace_id;
  uint64_t epoch = 0;
};

// Followed by the digests to pin, made in this epoch of the namespace.
struct PinQuestion {
  Digest namespace_id;
  uint64_t epoch = 0;
  uint32_t for_ms = 0;  // 0: the pins end now
  bool prefix = false;
  bool here = false;
  uint8_t reserved[2] = {};
};
static_assert(sizeof(PinQuestion) == 32);

// Followed by `held` digests of pages that were there, and a text for the worker's log.
struct RemovalAnswer {
  // ok, error, removing, deadline; stale: the namespace was cleared meanwhile, ask again
  uint32_t status = static_cast<uint32_t>(PageStatus::deadline);
  uint32_t held = 0;
};

// Followed by the reader's end of the channel (rdma::ChannelEnd), and the u32 numbers of its
// closed channels.
struct ChannelQuestion {
  HolderIndex holder = kNoHolder;
  uint8_t reserved[6] = {};
  uint64_t connect_id = 0;
};
static_assert(sizeof(ChannelQuestion) == 16);

// Followed by the digests of the pages.
struct PromoteQuestion {
  HolderIndex holder = kNoHolder;
  uint8_t reserved[6] = {};
};
static_assert(sizeof(PromoteQuestion) == 8);

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
