// Whether a digest that this node owns and has no record of is nowhere. The control plane says so,
// for one view.
//
// A look into the shard takes a while, in which the answer may change twice. So it counts only if
// one *term* lasts from before the look until after it. After a stall of this process, news still
// waits in the control plane's sockets while native threads already answer. So the control plane
// keeps confirming that it is up to date.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/clock.h"

namespace peercached {

class Finality {
 public:
  // Call from one thread at a time.
  void set(bool final, uint64_t view_number) {
    term_.store(0);
    if (!final) return;
    view_number_.store(view_number);
    term_.store(++terms_);
  }

  // The control plane has read its news: the term lasts until then.
  void keep(TimePoint until) { until_.store(until); }

  // The current term, for a reader with that view; 0: none.
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
