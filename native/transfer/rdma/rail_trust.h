// What the reads from one peer have seen of one rail, and so whether they may rely on it.
//
// A rail on which a channel broke is left alone for a while, longer each time, then tried again by
// whoever reads. One that fell silent tells nobody what is wrong, and each read that relied on it
// would cost its deadline: so its next channel must prove itself first (Channel::ask), and no page
// waits for that.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "common/clock.h"

namespace peercached::rdma {

// heard() from any thread; the rest under the mutex of the PeerChannels.
class RailTrust {
 public:
  void heard(TimePoint when) { heard_at_.store(when, std::memory_order_relaxed); }
  TimePoint heard_at() const { return heard_at_.load(std::memory_order_relaxed); }

  bool silent() const { return silent_; }
  bool may_connect(TimePoint now) const { return retry_at_ <= now; }

  void back_off(TimePoint now) {
    // At once the first time: one lost connection says little.
    retry_at_ = now + std::chrono::milliseconds(backoff_ms_);
    backoff_ms_ = std::clamp(backoff_ms_ * 2, kBackoffMinMs, kBackoffMaxMs);
  }
  void fell_silent(TimePoint now) {
    silent_ = true;
    silent_at_ = now;
  }
  // A channel came back in order. Of a silent rail that says nothing, unless it was heard since.
  void in_order() {
    if (silent_ && heard_at() <= silent_at_) return;
    silent_ = false;
    retry_at_ = {};
    backoff_ms_ = 0;
  }

 private:
  static constexpr int kBackoffMinMs = 20, kBackoffMaxMs = 2000;
  std::atomic<TimePoint> heard_at_{TimePoint{}};
  TimePoint silent_at_{};
  TimePoint retry_at_{};
  int backoff_ms_ = 0;
  bool silent_ = false;
};

}  // namespace peercached::rdma
