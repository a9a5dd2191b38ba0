// Defines when a peer, or a rail to it, counts as silent: a read received nothing until its
// deadline. Also defines when a peer counts as dribbling: it sent so little that this is no better
// than silence.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/clock.h"

namespace peercached {

// After a shorter silence the peer counts as slow, not as in trouble.
inline constexpr auto kSilenceMin = std::chrono::milliseconds(20);

// Whether the peer was silent for most of a read that began at `started` and is still incomplete at
// `now`. `heard`: when its last bytes came, in any read. Progress of other reads counts, because a
// read that waits for its turn is no sign of trouble.
inline bool is_silence(TimePoint heard, TimePoint started, TimePoint now) {
  const auto silent = now - std::max(heard, started);
  return silent >= kSilenceMin && silent >= (now - started) / 2;
}

// No holder is given up before it had this long, however short the call.
inline constexpr auto kFairWait = std::chrono::milliseconds(100);

// A holder that sends less than this over TCP is partly hung, or hostile. Unless it is suspected,
// every read from it lasts until its deadline. Every network carries far more.
inline constexpr uint64_t kDribbleBytesPerS = 256 << 10;
// In a shorter read, a single late packet would decide.
inline constexpr auto kDribbleMin = std::chrono::milliseconds(100);

inline bool is_dribble(uint64_t bytes, Clock::duration time) {
  if (time < kDribbleMin) return false;
  return static_cast<double>(bytes) <
         kDribbleBytesPerS * std::chrono::duration<double>(time).count();
}

}  // namespace peercached
