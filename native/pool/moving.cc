// Pages that a pool offers to others, because it stops or is full, and pages that it accepts.

#include <algorithm>

#include "pool/pool_impl.h"

namespace peercached {

namespace {
constexpr size_t kColdestMax = 4096;
constexpr size_t kJudgedMax = 1024;  // a walk under the mutex
// Eviction spares at most 1/kSparedShare of the pool. Offers to a peer that does not answer must
// not push out the pages that are in use.
constexpr uint64_t kSparedShare = 4;
}  // namespace

IdlePage Pool::Impl::idle_page(const Slot& slot, uint32_t at_ms) const {
  RecordRow row = row_of(slot);
  row.uses = slot.reads_in_all;
  return {row, slot.namespace_slot, at_ms - slot.touched_ms, slot.stamp, slot.moves};
}

void Pool::Impl::set_origin(Slot& slot, Origin origin) {
  if (slot.origin != Origin::set) {
    PoolStats::Count& left = slot.origin == Origin::moved ? counters.moved : counters.replicas;
    --left.keys;
    left.bytes -= slot.length;
  }
  slot.origin = origin;
  if (slot.origin != Origin::set) {
    PoolStats::Count& come = slot.origin == Origin::moved ? counters.moved : counters.replicas;
    ++come.keys;
    come.bytes += slot.length;
  }
}

uint32_t Pool::Impl::recorded(const RecordRow& record) {
  const uint32_t id = find_committed(record.digest);
  return id != kNoSlot && slots[id].generation == record.generation ? id : kNoSlot;
}

void Pool::Impl::spare(Slot& slot) {
  const uint64_t bytes = space.span_of(slot).size_class->stride_bytes;
  if (slot.spared || spared_bytes + bytes > space.capacity_bytes() / kSparedShare) return;
  slot.spared = true;
  spared_bytes += bytes;
}

void Pool::Impl::end_spare(Slot& slot) {
  if (!slot.spared) return;
  slot.spared = false;
  spared_bytes -= space.span_of(slot).size_class->stride_bytes;
}

PoolStats::Count Pool::replicas() const {
  MutexLock lock(impl_->mutex);
  return impl_->counters.replicas;
}

std::vector<IdlePage> Pool::Impl::warmest(const std::function<bool(const Slot&)>& wanted) const {
  std::vector<IdlePage> pages;
  uint32_t next = 0;
  while (visit_committed(next, [&](const Slot& slot, uint32_t at_ms) {
    mutex.assert_held();
    if (wanted(slot)) pages.push_back(idle_page(slot, at_ms));
  })) {
  }
  // Pages of a chain share a stamp; the page set first is nearer to its head.
  std::ranges::sort(pages, [](const IdlePage& a, const IdlePage& b) {
    return a.stamp != b.stamp ? a.stamp > b.stamp : a.row.generation < b.row.generation;
  });
  return pages;
}

std::vector<IdlePage> Pool::warmest(uint64_t bytes_max) const {
  std::vector<IdlePage> pages = impl_->warmest([](const Slot&) { return true; });
  uint64_t bytes = 0;
  const auto beyond = std::ranges::find_if(
      pages, [&](const IdlePage& page) { return (bytes += page.row.length) > bytes_max; });
  pages.erase(beyond, pages.end());
  return pages;
}

std::vector<IdlePage> Pool::warmest_read(uint8_t reads_min) const {
  return impl_->warmest([&](const Slot& slot) {
    return slot.reads_in_all >= reads_min && !slot.leaving && slot.moves != kMovesElsewhere;
  });
}

uint64_t Pool::Impl::free_bytes() const {
  return high_bytes() - std::min(high_bytes(), space.occupied_bytes());
}

PoolFilling Pool::filling() const {
  MutexLock lock(impl_->mutex);
  return {impl_->counters.set_bytes, impl_->free_bytes(), impl_->counters.lost_bytes};
}

void Pool::Impl::visit_coldest(uint64_t bytes,
                               const std::function<void(const Slot&)>& visit) const {
  const uint64_t free = free_bytes();
  if (bytes <= free) return;
  // It evicts down to the low mark.
  uint64_t left = bytes - free + high_bytes() - low_bytes();
  std::vector<uint32_t> next;
  recency.first(kColdestMax, next);
  for (const uint32_t id : next) {
    const Slot& slot = slots[id];
    if (slot.length > left && id != next.front()) break;
    left -= std::min<uint64_t>(left, slot.length);
    if (slot.pins == 0 && !slot.leaving && !slot.retained) visit(slot);
  }
}

std::vector<IdlePage> Pool::coldest(uint64_t bytes, uint8_t moves_max) const {
  std::vector<IdlePage> pages;
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  impl_->visit_coldest(bytes, [&](const Slot& slot) {
    impl_->mutex.assert_held();
    if (slot.moves < moves_max) pages.push_back(impl_->idle_page(slot, now_ms));
  });
  return pages;
}

std::vector<IdlePage> Pool::coldest_read(uint64_t bytes, uint8_t reads_min) const {
  std::vector<IdlePage> pages;
  {
    MutexLock lock(impl_->mutex);
    const uint32_t now_ms = impl_->now_ms();
    impl_->visit_coldest(bytes, [&](const Slot& slot) {
      impl_->mutex.assert_held();
      if (slot.reads_in_all >= reads_min) pages.push_back(impl_->idle_page(slot, now_ms));
    });
  }
  // Pages of a chain share a stamp; the page set first is nearer to its head.
  std::ranges::sort(pages, [](const IdlePage& a, const IdlePage& b) {
    return a.stamp != b.stamp ? a.stamp < b.stamp : a.row.generation < b.row.generation;
  });
  return pages;
}

std::vector<IdlePage> Pool::idle_pages(std::span<const Digest> digests) const {
  std::vector<IdlePage> pages;
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  for (const Digest& digest : digests)
    if (const uint32_t id = impl_->find_committed(digest);
        id != kNoSlot && !impl_->slots[id].leaving)
      pages.push_back(impl_->idle_page(impl_->slots[id], now_ms));
  return pages;
}

void Pool::set_moves(std::span<const Digest> digests, uint8_t moves) {
  MutexLock lock(impl_->mutex);
  for (const Digest& digest : digests)
    if (const uint32_t id = impl_->find_committed(digest); id != kNoSlot)
      impl_->slots[id].moves = moves;
}

void Pool::begin_offer(std::span<const RecordRow> records) {
  MutexLock lock(impl_->mutex);
  for (const RecordRow& record : records) {
    const uint32_t id = impl_->recorded(record);
    if (id == kNoSlot || impl_->slots[id].offers == UINT8_MAX) continue;
    ++impl_->slots[id].offers;
    if (!impl_->slots[id].leaving) impl_->spare(impl_->slots[id]);
  }
}

void Pool::end_offer(std::span<const RecordRow> records) {
  MutexLock lock(impl_->mutex);
  for (const RecordRow& record : records) {
    const uint32_t id = impl_->recorded(record);
    if (id == kNoSlot || impl_->slots[id].offers == 0) continue;
    if (--impl_->slots[id].offers > 0) continue;
    impl_->end_spare(impl_->slots[id]);
    if (impl_->slots[id].pins == 0) impl_->recency.unpinned(id);
  }
  // The evictor may have been waiting for one of these pages.
  impl_->wake_evictor();
}

void Pool::give_away(std::span<const RecordRow> records, bool unless_kept,
                     std::vector<RecordRow>& rows) {
  MutexLock lock(impl_->mutex);
  for (const RecordRow& record : records) {
    const uint32_t id = impl_->recorded(record);
    if (id == kNoSlot) continue;
    Slot& slot = impl_->slots[id];
    if (slot.leaving || (unless_kept && slot.kept)) continue;
    slot.leaving = true;
    impl_->end_spare(slot);
    impl_->set_retained(slot, false);
    impl_->recency.taken(id);
    RecordRow& row = rows.emplace_back(impl_->row_of(slot));
    row.flags = kRecordWithdraw;
    row.generation = next_generation();
  }
}

void Pool::keeps(std::span<const RecordRow> pages, std::span<Here> states) {
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  for (size_t i = 0; i < pages.size(); ++i) {
    const uint32_t id = impl_->find_committed(pages[i].digest);
    states[i] = Here::no;
    if (id == kNoSlot) continue;
    const Slot& slot = impl_->slots[id];
    const bool given = slot.offers > 0 || slot.leaving || slot.moves == kMovesElsewhere;
    const bool stays = !given && slot.length == pages[i].length;
    states[i] = stays ? Here::yes : Here::leaves;
    if (stays) impl_->use(id, impl_->slots.parent_of(id), now_ms);
  }
}

PoolRoom Pool::room(uint64_t bytes) const {
  std::vector<uint32_t> next;
  MutexLock lock(impl_->mutex);
  PoolRoom room;
  room.free_bytes =
      impl_->low_bytes() - std::min(impl_->low_bytes(), impl_->space.occupied_bytes());
  impl_->recency.first(bytes > 1 ? kJudgedMax : 1, next);
  const uint32_t now_ms = impl_->now_ms();
  uint64_t gone = 0;
  for (const uint32_t id : next) {
    const uint32_t idle_ms = now_ms - impl_->slots[id].touched_ms;
    room.coldest_idle_ms = gone == 0 ? idle_ms : std::min(room.coldest_idle_ms, idle_ms);
    gone += impl_->slots[id].length;
    if (gone >= bytes) break;
  }
  return room;
}

}  // namespace peercached
