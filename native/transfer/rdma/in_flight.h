// Bounds the payload bytes in flight from one peer over one rail, in all reads together.
//
// Requests beyond the capacity of the wire only fill its queues. If these hold more than one
// retransmission timeout can carry, timers fire for packets that were never lost. Everything behind
// them is sent twice, and the queues grow: 16 threads got a third of the throughput of 2. So chains
// wait here instead, in order of arrival.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "common/mutex.h"

namespace peercached::rdma {

class InFlight {
 public:
  // A hundred times what a 400 Gb/s card needs to be busy, or 17 ms of soft-RoCE.
  static constexpr uint64_t kBytesMax = 8ull << 20;

  // One sender's entry in the queue. It must not move while it waits.
  struct Place {
    uint64_t bytes = 0;
    int event_fd = -1;
    enum class State : uint8_t { none, waiting, granted };
    std::atomic<State> state = State::none;  // other threads only ever change it to granted
  };

  // True: `bytes` (at most kBytesMax) now belong to the caller. False: wait until `place.event_fd`
  // is written, then call again with the same `bytes`.
  bool take(Place& place, uint64_t bytes);
  void give_back(uint64_t bytes);
  // The sender gives up: leaves the queue, or returns bytes that were granted meanwhile.
  void leave(Place& place);

 private:
  void grant() REQUIRES(mutex_);

  Mutex mutex_;
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
  std::deque<Place*> waiting_ GUARDED_BY(mutex_);
};

}  // namespace peercached::rdma
