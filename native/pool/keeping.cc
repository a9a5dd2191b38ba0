// Pages that are kept from eviction for a while, and the pages that were read most.

#include <algorithm>
#include <utility>

#include "pool/pool_impl.h"
#include "pool/reads.h"

namespace peercached {

void Pool::Impl::end_keep(Slot& slot) {
  if (!slot.kept) return;
  slot.kept = false;
  ended.push_back({slot.digest, slot.generation, slot.length, slot.namespace_slot});
  --counters.pins;
  if (--slot.pins == 0) space.let_go(slot);
}

void Pool::keep(std::span<const Digest> digests, std::span<KeptPage> out, bool unless_leaving) {
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  uint32_t before = kNoSlot;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (i + 1 < digests.size()) impl_->slots.prefetch(digests[i + 1]);
    out[i] = {};
    const uint32_t id = impl_->find_committed(digests[i]);
    if (id == kNoSlot || (unless_leaving && impl_->slots[id].leaving)) continue;
    if (before == kNoSlot) before = impl_->slots.parent_of(id);
    impl_->use(id, before, now_ms);
    before = id;
    Slot& slot = impl_->slots[id];
    if (!slot.kept) impl_->pin(id);
    slot.kept = true;
    out[i] = {slot.digest, slot.generation, slot.length, slot.namespace_slot};
  }
}

void Pool::release(std::span<const KeptPage> pages) {
  MutexLock lock(impl_->mutex);
  for (const KeptPage& page : pages) {
    const uint32_t id = impl_->find_committed(page.digest);
    if (id == kNoSlot || impl_->slots[id].generation != page.generation) continue;
    if (!std::exchange(impl_->slots[id].kept, false)) continue;
    impl_->unpin(id);
  }
  // The evictor may have been waiting for one of these pages.
  impl_->wake_evictor();
}

std::vector<KeptPage> Pool::take_ended() {
  MutexLock lock(impl_->mutex);
  return std::exchange(impl_->ended, {});
}

std::vector<HotPage> Pool::hottest(size_t limit, uint32_t namespace_slot) const {
  const auto hotter = [](const HotPage& a, const HotPage& b) {
    return a.reads != b.reads ? a.reads > b.reads : a.idle_ms < b.idle_ms;
  };
  std::vector<HotPage> hottest;  // a heap, with the coldest of them in front
  const auto consider = [&](const Slot& slot, uint32_t now_ms) {
    if (namespace_slot != 0 && slot.namespace_slot != namespace_slot) return;
    const HotPage page{slot.digest, slot.length, slot.namespace_slot, reads_lately(slot, now_ms),
                       now_ms - slot.touched_ms};
    if (page.reads == 0) return;
    if (hottest.size() == limit) {
      if (!hotter(page, hottest.front())) return;
      std::ranges::pop_heap(hottest, hotter);
      hottest.pop_back();
    }
    hottest.push_back(page);
    std::ranges::push_heap(hottest, hotter);
  };
  uint32_t next = 0;
  while (limit > 0 && impl_->visit_committed(next, consider)) {
  }
  std::ranges::sort_heap(hottest, hotter);
  return hottest;
}

}  // namespace peercached
