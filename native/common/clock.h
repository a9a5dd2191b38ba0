// Deadlines on the monotonic clock. Wall time is never used in the data plane.
#pragma once

#include <chrono>
#include <cstdint>

namespace peercached {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

struct Deadline {
  TimePoint at;

  static Deadline after_ms(int64_t ms) { return {Clock::now() + std::chrono::milliseconds(ms)}; }
  bool passed() const { return Clock::now() >= at; }
  // Whole milliseconds left for poll(): rounded up, 0 to one hour.
  int remaining_ms() const {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(at - Clock::now()).count();
    return left < 0 ? 0 : left > 3'600'000 ? 3'600'000 : static_cast<int>(left);
  }
};

}  // namespace peercached
