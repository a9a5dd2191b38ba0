// Where one get spends its time: for `peercachectl trace`, and for gets with a span of their
// caller. Any other get carries no trace, and pays one branch per step for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

// The span that a call belongs to, as in a W3C traceparent. Neither is ever zero.
struct CallerSpan {
  std::array<uint8_t, 16> trace_id{};
  std::array<uint8_t, 8> span_id{};
};
static_assert(sizeof(CallerSpan) == 24);

struct Trace {
  // A large batch from many disks has more steps. Those are left out, and counted.
  static constexpr size_t kStepsMax = 256;

  struct Step {
    const char* name;
    TimePoint begin, end;
    HolderIndex holder = kNoHolder;  // the node found or asked
    PageStatus status = PageStatus::absent;
    uint32_t pages = 1;  // that the step was about
    uint32_t found = 0;  // of these, the pages that it found or gave
  };

  void add(const Step& step) {
    if (steps.size() < kStepsMax) {
      steps.push_back(step);
    } else {
      ++left_out;
    }
  }

  std::vector<Step> steps;
  uint32_t left_out = 0;
};

// One step, from here to done(). Does nothing without a trace.
class TraceStep {
 public:
  TraceStep(Trace* trace, const char* name, size_t pages = 1)
      : trace_(trace), name_(name), pages_(static_cast<uint32_t>(pages)) {
    if (trace_ != nullptr) begin_ = Clock::now();
  }
  void done(PageStatus status, HolderIndex holder = kNoHolder) {
    done(status, holder, pages_, status == PageStatus::ok ? pages_ : 0);
  }
  void done(PageStatus status, HolderIndex holder, size_t pages, size_t found) {
    if (trace_ == nullptr) return;
    trace_->add({name_, begin_, Clock::now(), holder, status, static_cast<uint32_t>(pages),
                 static_cast<uint32_t>(found)});
  }

 private:
  Trace* trace_;
  const char* name_;
  uint32_t pages_;
  TimePoint begin_;
};

}  // namespace peercached
