// What one namespace holds of the pool, and what it may hold.
//
// A namespace with a quota that is full makes room among its own pages, least recently used first,
// and when those are all in use its page is refused: it never costs another namespace a page. A
// quota is a cap, no reservation: below it a namespace competes for the pool like any other.
#pragma once

#include <cstdint>

#include "pool/slot.h"

namespace peercached {

inline constexpr uint64_t kNoQuota = UINT64_MAX;

struct NamespacePages {
  // Committed pages, most recently used first where there is a quota; else as they were set.
  SlotList<&Slot::in_namespace> pages;
  uint64_t bytes = 0;  // stride bytes of all slots that are not free, reserved ones too
  uint64_t quota_bytes = kNoQuota;
  uint64_t evictions = 0, refused = 0;  // for the quota's sake

  bool forgettable() const { return bytes == 0 && quota_bytes == kNoQuota; }
};

}  // namespace peercached
