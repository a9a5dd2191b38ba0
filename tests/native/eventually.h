#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "common/clock.h"

namespace peercached {

// Waits for an event that must come, as long as a slow machine may need. A fixed sleep would be too
// short or too long.
inline bool eventually(const std::function<bool()>& condition, int64_t ms = 20'000) {
  const Deadline deadline = Deadline::after_ms(ms);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace peercached
