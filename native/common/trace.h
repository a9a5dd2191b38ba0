// Where one get spends its time, for `peercachectl trace`. A worker's request carries no trace, and
// pays one branch per step for it.
#pragma once

#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

struct Trace {
  struct Step {
    const char* name;
    TimePoint begin, end;
    HolderIndex holder = kNoHolder;  // the node found or asked
    PageStatus status = PageStatus::absent;
  };
  std::vector<Step> steps;
};

// One step, from here to done(). Does nothing without a trace.
class TraceStep {
 public:
  TraceStep(Trace* trace, const char* name) : trace_(trace), name_(name) {
    if (trace_ != nullptr) begin_ = Clock::now();
  }
  void done(PageStatus status, HolderIndex holder = kNoHolder) {
    if (trace_ != nullptr) trace_->steps.push_back({name_, begin_, Clock::now(), holder, status});
  }

 private:
  Trace* trace_;
  const char* name_;
  TimePoint begin_;
};

}  // namespace peercached
