// How many payload bytes are on their way from one peer over one rail, in all reads together:
// bounded.
//
// What is asked for beyond what the wire carries only stands in its queues. When those hold more
// than goes through in one retransmission timeout, timers fire for packets that were never lost,
// everything behind them is sent twice, and the queues grow: 16 threads got a third of what 2 did.
// So chains wait here instead, in the order they came.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

namespace peercached::rdma {

class InFlight {
 public:
  // A hundred times what a card of 400 Gb/s needs to be busy; 17 ms of soft-RoCE.
  static constexpr uint64_t kBytesMax = 8ull << 20;

  // One who wants to send; where it is while it waits.
  struct Place {
    uint64_t bytes = 0;
    int event_fd = -1;
    enum class State : uint8_t { none, waiting, granted };
    std::atomic<State> state = State::none;  // others only ever grant
  };

  // True: `bytes` (at most kBytesMax) are the caller's. False: later, and then `place.event_fd` is
  // written; call again, with the same `bytes`.
  bool take(Place& place, uint64_t bytes);
  void give_back(uint64_t bytes);
  // No longer wanted: out of the queue, or what was granted meanwhile is given back.
  void leave(Place& place);

 private:
  void grant();

  std::mutex mutex_;
  uint64_t bytes_ = 0;
  std::deque<Place*> waiting_;
};

}  // namespace peercached::rdma
