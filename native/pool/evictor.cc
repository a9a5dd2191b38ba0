// Eviction: how pages leave the pool.

#include <algorithm>
#include <cassert>

#include "pool/pool_impl.h"
#include "pool/reads.h"
#include "pool/slot_header.h"

namespace peercached {

namespace {
// The evictor releases the mutex and calls the sink after this many pages.
constexpr size_t kEvictPagesPerTurn = 64;
}  // namespace

void Pool::Impl::drop(uint32_t id, uint64_t& counter, std::vector<RecordRow>& rows) {
  Slot& slot = slots[id];
  assert(slot.state == SlotState::committed);
  // Once, even if eviction or a removal comes before drop_given().
  ++(slot.leaving ? counters.given : counter);
  // Must come first: from here on no remote reader accepts these bytes.
  invalidate_header(header_of(slot));
  RecordRow row = row_of(slot);
  row.flags = kRecordWithdraw;
  row.generation = next_generation();
  rows.push_back(row);
  end_keep(slot);
  end_spare(slot);
  set_hinted(slot, false);
  slot.ahead = false;
  set_retained(slot, false);
  slot.generation = row.generation;  // for withdrawals_of(), while pins keep the slot

  slots.erase(id);
  recency.removed(id);
  forget_reads(slot);
  --counters.keys;
  --namespaces.pages[slot.namespace_slot].keys;
  counters.payload_bytes -= slot.length;
  set_origin(slot, Origin::set);
  slot.state = SlotState::removed;
  if (slot.pins == 0) free_slot(id);
}

void Pool::Impl::free_slot(uint32_t id) {
  const auto in_namespace = namespaces.pages.find(slots[id].namespace_slot);
  in_namespace->second.bytes -= space.span_of(slots[id]).size_class->stride_bytes;
  if (in_namespace->second.forgettable()) namespaces.pages.erase(in_namespace);
  space.give_back(id);
}

bool Pool::Impl::make_room_in(uint32_t namespace_slot, uint64_t bytes,
                              std::vector<RecordRow>& evicted) {
  const auto found = namespaces.pages.find(namespace_slot);
  if (found == namespaces.pages.end()) return true;
  NamespacePages& own = found->second;
  while (own.bytes > own.quota_bytes || bytes > own.quota_bytes - own.bytes) {
    const uint32_t victim = recency.next_of(own);
    // A page larger than the quota never fits, so evicting the rest would gain nothing.
    if (victim == kNoSlot || bytes > own.quota_bytes) {
      ++own.refused;
      return false;
    }
    ++own.evictions;
    evict(victim, evicted);
  }
  return true;
}

void Pool::set_quota(uint32_t namespace_slot, uint64_t bytes) {
  MutexLock lock(impl_->mutex);
  impl_->namespaces.quotas = true;
  impl_->namespaces.pages[namespace_slot].quota_bytes = bytes;
}

void Pool::drop_quota(uint32_t namespace_slot) {
  MutexLock lock(impl_->mutex);
  const auto found = impl_->namespaces.pages.find(namespace_slot);
  if (found == impl_->namespaces.pages.end()) return;
  found->second.quota_bytes = kNoQuota;
  if (found->second.forgettable()) impl_->namespaces.pages.erase(found);
}

NamespaceUse Pool::use_of(uint32_t namespace_slot) const {
  MutexLock lock(impl_->mutex);
  const auto found = impl_->namespaces.pages.find(namespace_slot);
  if (found == impl_->namespaces.pages.end()) return {};
  const NamespacePages& own = found->second;
  return {own.keys,    own.bytes,        own.quota_bytes,   own.evictions,
          own.refused, own.hinted_bytes, own.retained_bytes};
}

void Pool::Impl::evict(uint32_t id, std::vector<RecordRow>& rows) {
  const Slot& slot = slots[id];
  const uint8_t uses = slot.reads_in_all;
  assert(slot.pins == 0);
  if (!slot.leaving) {
    const bool elsewhere = slot.moves == kMovesElsewhere && slot.offers == 0;
    if (!elsewhere && slot.origin != Origin::copied) counters.lost_bytes += slot.length;
    ++space.span_of(slot).size_class->evictions;
  }
  drop(id, counters.evictions, rows);
  rows.back().uses = uses;
}

void Pool::Impl::evict_for_room(uint32_t id, std::vector<RecordRow>& rows) {
  evicted_keys.add(slots[id].digest, space.span_of(slots[id]).size_class->stride_bytes);
  evict(id, rows);
}

const EvictedKeys& Pool::evicted() const { return impl_->evicted_keys; }

uint32_t Pool::Impl::take_slot(SizeClass& size_class, std::vector<RecordRow>& evicted) {
  for (;;) {
    if (const uint32_t id = space.take(size_class); id != kNoSlot) return id;
    if (!victims.find(size_class, chosen)) return kNoSlot;
    const bool other_class = space.span_of(slots[chosen[0]]).size_class != &size_class;
    if (other_class || chosen.size() > 1) ++counters.span_moves;
    for (uint32_t id : chosen) evict_for_room(id, evicted);
  }
}

// Leaves a page larger than the gap between the watermarks to inline eviction. Dropping it early
// would empty more of the pool than the low watermark asks for.
bool Pool::Impl::should_evict() {
  if (!above_high) return false;
  const uint32_t id = recency.next();
  if (id != kNoSlot) {
    const uint64_t stride = space.span_of(slots[id]).size_class->stride_bytes;
    if (space.occupied_bytes() - stride >= low_bytes()) return true;
  }
  above_high = false;
  return false;
}

void Pool::Impl::wake_evictor() {
  if (above_high || space.occupied_bytes() <= high_bytes()) return;
  above_high = true;
  if (should_evict()) pressure.notify_one();
}

void Pool::Impl::evict_in_background() {
  std::vector<RecordRow> evicted;
  evicted.reserve(kEvictPagesPerTurn);
  MutexLock lock(mutex);
  for (;;) {
    while (!stopping && !should_evict()) pressure.wait(mutex);
    if (stopping) return;
    while (evicted.size() < kEvictPagesPerTurn && should_evict())
      evict_for_room(recency.next(), evicted);
    MutexUnlock unlocked(mutex);
    if (on_evict) on_evict(evicted);
    evicted.clear();
  }
}

// --- eviction requested by an operator ---------------------------------------------------------

Evicted Pool::evict(std::span<const Digest> digests) {
  Evicted evicted;
  std::vector<RecordRow> rows;
  for (size_t first = 0; first < digests.size(); first += kEvictPagesPerTurn) {
    {
      MutexLock lock(impl_->mutex);
      for (const Digest& digest :
           digests.subspan(first, std::min(kEvictPagesPerTurn, digests.size() - first))) {
        const uint32_t id = impl_->find_committed(digest);
        if (id == kNoSlot || impl_->slots[id].pins > 0) continue;
        ++evicted.pages;
        evicted.bytes += impl_->slots[id].length;
        impl_->evict(id, rows);
      }
    }
    if (!rows.empty() && impl_->on_evict) impl_->on_evict(rows);
    rows.clear();
  }
  return evicted;
}

Evicted Pool::evict_coldest(uint64_t bytes) {
  Evicted evicted;
  std::vector<RecordRow> rows;
  for (bool more = true; more;) {
    {
      MutexLock lock(impl_->mutex);
      while (rows.size() < kEvictPagesPerTurn) {
        const uint32_t id = evicted.bytes < bytes ? impl_->recency.next() : kNoSlot;
        if (id == kNoSlot) {
          more = false;
          break;
        }
        ++evicted.pages;
        evicted.bytes += impl_->slots[id].length;
        impl_->evict(id, rows);
      }
    }
    if (!rows.empty() && impl_->on_evict) impl_->on_evict(rows);
    rows.clear();
  }
  return evicted;
}

}  // namespace peercached
