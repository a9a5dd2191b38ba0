#include "engine/observe/call_traces.h"

#include <utility>

namespace peercached {

void CallTraces::add(TracedCall call) {
  const std::lock_guard lock(mutex_);
  if (calls_.size() < kCallsMax) {
    calls_.push_back(std::move(call));
  } else {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

std::vector<TracedCall> CallTraces::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(calls_, {});
}

}  // namespace peercached
