// When a peer, or a rail to it, counts as silent: nothing has come of a read until its deadline.
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

}  // namespace peercached
