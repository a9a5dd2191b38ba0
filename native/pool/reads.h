// How often a page was read lately: a count for this window of time, and one for the window before.
// Both together cover the last 10 to 20 minutes. A count that is full stays full.
#pragma once

#include <cstdint>

#include "pool/slot.h"

namespace peercached {

inline constexpr uint32_t kReadsWindowMs = 600'000;

inline void turn_window(Slot& slot, uint32_t now_ms) {
  const uint32_t window = now_ms / kReadsWindowMs;
  if (window == slot.window) return;
  slot.reads_before = window == slot.window + 1 ? slot.reads : uint16_t{0};
  slot.reads = 0;
  slot.window = window;
}

inline void count_read(Slot& slot, uint32_t now_ms) {
  turn_window(slot, now_ms);
  if (slot.reads != UINT16_MAX) ++slot.reads;
  if (slot.reads_in_all != UINT8_MAX) ++slot.reads_in_all;
}

inline uint32_t reads_lately(Slot slot, uint32_t now_ms) {
  turn_window(slot, now_ms);
  return uint32_t{slot.reads} + slot.reads_before;
}

inline void forget_reads(Slot& slot) {
  slot.reads = slot.reads_before = 0;
  slot.reads_in_all = 0;
}

}  // namespace peercached
