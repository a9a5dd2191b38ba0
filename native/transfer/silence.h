// When a peer, or a rail to it, counts as silent: nothing of a read came until its deadline. And
// when a peer counts as dribbling: so little came that it is no better than silence.
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

// A holder that sends less than this over TCP hangs in part, or is hostile. Unless it is suspected,
// each read from it costs its whole time. Every network carries far more.
inline constexpr uint64_t kDribbleBytesPerS = 256 << 10;
// In a shorter read a single late packet would decide.
inline constexpr auto kDribbleMin = std::chrono::milliseconds(100);

inline bool is_dribble(uint64_t bytes, Clock::duration time) {
  if (time < kDribbleMin) return false;
  return static_cast<double>(bytes) <
         kDribbleBytesPerS * std::chrono::duration<double>(time).count();
}

}  // namespace peercached
