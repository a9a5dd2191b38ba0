// When a peer, or a rail to it, counts as silent, because nothing has come of a read until its
// deadline; and when what came was so little that it is no better.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/clock.h"

namespace peercached {

// One from which something has come lately is slow, not in trouble.
inline constexpr auto kSilenceMin = std::chrono::milliseconds(20);

// Whether it was silent for most of a read that began at `started` and ends `now`, unfinished.
// `heard`: when something came last, in any read; of one that waits for its turn while others get
// on, that is no sign of trouble.
inline bool is_silence(TimePoint heard, TimePoint started, TimePoint now) {
  const auto silent = now - std::max(heard, started);
  return silent >= kSilenceMin && silent >= (now - started) / 2;
}

// Over TCP. A holder that sends less than this is hung in parts, or means no good: each of its
// reads would cost its whole time, for ever. Far below what the slowest network carries.
inline constexpr uint64_t kDribbleBytesPerS = 256 << 10;
// Of a shorter read one late packet decides.
inline constexpr auto kDribbleMin = std::chrono::milliseconds(100);

inline bool is_dribble(uint64_t bytes, Clock::duration time) {
  if (time < kDribbleMin) return false;
  return static_cast<double>(bytes) <
         kDribbleBytesPerS * std::chrono::duration<double>(time).count();
}

}  // namespace peercached
