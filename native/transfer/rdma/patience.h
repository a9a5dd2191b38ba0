// How long to poll for a completion before sleeping until an event.
//
// A completion found by polling saves a wake-up (20 us and more across cores). Polling that ends in
// sleep is lost time. So the span grows while polling pays, and shrinks, down to nothing, while it
// does not. A machine with one processor never polls.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/clock.h"

namespace peercached::rdma {

class Patience {
 public:
  std::chrono::microseconds span() {
    const unsigned us = us_.load(std::memory_order_relaxed);
    // Poll now and then, or the span could never grow again.
    if (us == 0 && ++sleeps_ % kTryEvery != 0) return {};
    return std::chrono::microseconds(single_processor_ ? 0 : std::max(us, kUsMin));
  }
  void paid() { us_.store(std::min(std::max(us_.load(), kUsMin) * 2, kUsMax)); }
  void did_not_pay() {
    const unsigned half = us_.load() / 2;
    us_.store(half < kUsMin ? 0 : half);
  }

 private:
  static constexpr unsigned kUsMin = 5, kUsMax = 100, kTryEvery = 32;
  const bool single_processor_ = std::thread::hardware_concurrency() <= 1;
  std::atomic<unsigned> us_{kUsMax};
  std::atomic<unsigned> sleeps_{0};
};

}  // namespace peercached::rdma
