// Drain: which pages a stopping pool offers to others, and which ones a pool accepts.

#include <algorithm>

#include "pool/pool_impl.h"

namespace peercached {

namespace {
constexpr uint32_t kSlotsPerTurn = 1024;
}

std::vector<WarmPage> Pool::warmest(uint64_t bytes_max) const {
  std::vector<WarmPage> pages;
  uint32_t next = 0;
  for (bool more = true; more;) {
    MutexLock lock(impl_->mutex);
    const uint32_t now_ms = impl_->now_ms();
    const uint32_t end = std::min(next + kSlotsPerTurn, impl_->slots.end());
    for (; next < end; ++next) {
      const Slot& slot = impl_->slots[next];
      if (slot.state != SlotState::committed) continue;
      pages.push_back(
          {impl_->row_of(slot), slot.namespace_slot, now_ms - slot.touched_ms, slot.stamp});
    }
    more = next < impl_->slots.end();
  }
  // Pages of a chain share a stamp; the page set first is nearer to its head.
  std::ranges::sort(pages, [](const WarmPage& a, const WarmPage& b) {
    return a.stamp != b.stamp ? a.stamp > b.stamp : a.row.generation < b.row.generation;
  });
  uint64_t bytes = 0;
  const auto beyond = std::ranges::find_if(
      pages, [&](const WarmPage& page) { return (bytes += page.row.length) > bytes_max; });
  pages.erase(beyond, pages.end());
  return pages;
}

bool Pool::wants(uint64_t bytes, uint32_t idle_ms) const {
  MutexLock lock(impl_->mutex);
  if (impl_->space.used_bytes() + bytes <= impl_->low_bytes) return true;
  const uint32_t coldest = impl_->policy->next();
  return coldest != kNoSlot && impl_->now_ms() - impl_->slots[coldest].touched_ms > idle_ms;
}

}  // namespace peercached
