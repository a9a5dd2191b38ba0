// How pages leave the pool.

#include <algorithm>
#include <cassert>

#include "pool/pool_impl.h"
#include "pool/slot_header.h"

namespace peercached {

namespace {
// The mutex is let go, and the sink called, after so many.
constexpr size_t kEvictPagesPerTurn = 64;
}  // namespace

void Pool::Impl::drop(uint32_t id, std::vector<RecordRow>& rows) {
  Slot& slot = slots[id];
  assert(slot.state == SlotState::committed);
  // First of all: from here on no remote reader accepts these bytes.
  invalidate_header(header_of(slot));
  RecordRow row = row_of(slot);
  row.flags = kRecordWithdraw;
  row.generation = next_generation();
  rows.push_back(row);
  slot.generation = row.generation;  // for withdrawals_of(), while pins keep the slot

  slots.erase(id);
  recency.remove(id);
  const auto in_namespace = namespaces.find(slot.namespace_slot);
  in_namespace->second.remove(slots.data(), id);
  if (in_namespace->second.empty()) namespaces.erase(in_namespace);
  --counters.keys;
  counters.payload_bytes -= slot.length;
  slot.state = SlotState::removed;
  if (slot.pins == 0) space.give_back(id);
}

void Pool::Impl::evict(uint32_t id, std::vector<RecordRow>& rows) {
  assert(slots[id].pins == 0);
  ++counters.evictions;
  ++space.span_of(slots[id]).size_class->evictions;
  drop(id, rows);
}

uint32_t Pool::Impl::take_slot(SizeClass& size_class, std::vector<RecordRow>& evicted) {
  for (;;) {
    if (const uint32_t id = space.take(size_class); id != kNoSlot) return id;
    if (!victims.find(size_class, chosen)) return kNoSlot;
    const bool other_class = space.span_of(slots[chosen[0]]).size_class != &size_class;
    if (other_class || chosen.size() > 1) ++counters.span_moves;
    for (uint32_t id : chosen) evict(id, evicted);
  }
}

// A page larger than the room between the watermarks is left to inline eviction: to drop it
// early would empty more of the pool than anyone asked for.
bool Pool::Impl::should_evict() {
  if (!above_high) return false;
  const uint32_t id = recency.coldest();
  if (id != kNoSlot) {
    const uint64_t stride = space.span_of(slots[id]).size_class->stride_bytes;
    if (space.occupied_bytes() - stride >= low_bytes) return true;
  }
  above_high = false;
  return false;
}

void Pool::Impl::wake_evictor() {
  if (above_high || space.occupied_bytes() <= high_bytes) return;
  above_high = true;
  if (should_evict()) pressure.notify_one();
}

void Pool::Impl::evict_in_background() {
  std::vector<RecordRow> evicted;
  evicted.reserve(kEvictPagesPerTurn);
  std::unique_lock lock(mutex);
  for (;;) {
    pressure.wait(lock, [this] { return stopping || should_evict(); });
    if (stopping) return;
    while (evicted.size() < kEvictPagesPerTurn && should_evict()) evict(recency.coldest(), evicted);
    lock.unlock();
    if (on_evict) on_evict(evicted);
    evicted.clear();
    lock.lock();
  }
}

// --- on an operator's word ---------------------------------------------------------------------

Evicted Pool::evict(std::span<const Digest> digests) {
  Evicted evicted;
  std::vector<RecordRow> rows;
  for (size_t first = 0; first < digests.size(); first += kEvictPagesPerTurn) {
    {
      std::lock_guard lock(impl_->mutex);
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
      std::lock_guard lock(impl_->mutex);
      while (rows.size() < kEvictPagesPerTurn) {
        const uint32_t id = evicted.bytes < bytes ? impl_->recency.coldest() : kNoSlot;
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
