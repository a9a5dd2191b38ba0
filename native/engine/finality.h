// Whether what this node owns and has no record of is nowhere: the control plane says so, per view.
//
// A look into the shard takes a while, in which the answer may change twice. So it counts only if
// one *term* lasted from before the look until after it. And when this process has stood still,
// what it was told meanwhile lies in the control plane's sockets, while native threads answer at
// once. So the control plane says again and again that it is up to date.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/clock.h"

namespace peercached {

class Finality {
 public:
  // From one thread at a time.
  void set(bool final, uint64_t view_number) {
    term_.store(0);
    if (!final) return;
    view_number_.store(view_number);
    term_.store(++terms_);
  }

  // The control plane has read what it was told.
  void keep(TimePoint until) { until_.store(until); }

  // The term that lasts, for a reader with that view; 0: none.
  uint64_t term(uint64_t view_number) const {
    const uint64_t term = term_.load();
    return view_number_.load() == view_number && lasts(term) ? term : 0;
  }
  bool lasts(uint64_t term) const {
    return term != 0 && term_.load() == term && Clock::now() < until_.load();
  }

 private:
  std::atomic<TimePoint> until_{TimePoint{}};
  std::atomic<uint64_t> term_{0}, view_number_{0};
  uint64_t terms_ = 0;
};

}  // namespace peercached
