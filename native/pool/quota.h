// One namespace's share of the pool, and its quota.
//
// A namespace at its quota evicts its own pages to make room, in the pool's order. If they are all
// in use, its new page is refused. It never costs another namespace a page. A quota is a cap, not a
// reservation: below it a namespace competes for the pool like any other.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "pool/slot.h"

namespace peercached {

inline constexpr uint64_t kNoQuota = UINT64_MAX;

struct NamespacePages {
  // Committed pages. Their order matters only if any namespace has a quota.
  OrderedPages<&Slot::in_namespace> pages;
  uint64_t keys = 0;   // committed pages
  uint64_t bytes = 0;  // stride bytes of all slots that are not free, reserved ones included
  uint64_t quota_bytes = kNoQuota;
  uint64_t evictions = 0, refused = 0;            // caused by the quota
  uint64_t hinted_bytes = 0, retained_bytes = 0;  // payload of its pages with these flags

  bool forgettable() const { return bytes == 0 && quota_bytes == kNoQuota; }
};

// By namespace slot.
struct Namespaces {
  std::unordered_map<uint32_t, NamespacePages> pages;
  bool quotas = false;  // whether any has one
};

}  // namespace peercached
