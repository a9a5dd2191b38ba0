#include "pool/pool.h"

#include <algorithm>
#include <cassert>
#include <chrono>

#include "common/thread_name.h"
#include "pool/pool_impl.h"
#include "pool/reads.h"
#include "pool/slot_header.h"

namespace peercached {

namespace {

PoolMemory memory_for(const PoolConfig& config) {
  if (config.file.path.empty())
    return PoolMemory(config.size_bytes, config.huge_pages, config.first_bytes);
  return PoolMemory(std::make_unique<PoolFile>(config.file, config.size_bytes, config.huge_pages),
                    config.first_bytes);
}

Space space_for(SlotTable& slots, const PoolMemory& memory) {
  const uint64_t ready_bytes = memory.ready_bytes();
  if (memory.file() == nullptr) return Space(slots, memory.size_bytes(), ready_bytes);
  const SpanWords words(memory.file()->span_words(memory.base()), memory.size_bytes());
  return Space(slots, memory.size_bytes(), ready_bytes, memory.base(), words);
}

}  // namespace

Pool::Impl::Impl(const PoolConfig& config, EvictSink sink, const NamespaceJudge& judge)
    : incarnation(config.incarnation),
      on_evict(std::move(sink)),
      position(config.position),
      memory(memory_for(config)),
      high_watermark(config.high_watermark),
      low_watermark(config.low_watermark),
      slots(memory.size_bytes(), kStrideBytesMin),
      space(space_for(slots, memory)),
      evicted_keys(memory.size_bytes()),
      recency(slots, space, namespaces),
      victims(slots, space, recency) {
  growing = memory.ready_bytes() < memory.size_bytes();
  if (memory.file() != nullptr) restore(judge, config.is_void);
  evictor = std::thread([this] {
    name_thread("evict");
    evict_in_background();
  });
}

Pool::Impl::~Impl() {
  {
    MutexLock lock(mutex);
    stopping = true;
  }
  pressure.notify_one();
  evictor.join();
}

uint32_t Pool::Impl::now_ms() const {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count());
}

PinnedPage Pool::Impl::page_of(uint32_t id) const {
  const Slot& slot = slots[id];
  return {header_of(slot), id, slot.length, slot.checksum};
}

RecordRow Pool::Impl::row_of(const Slot& slot) const {
  RecordRow row;
  row.digest = slot.digest;
  row.offset = slot.offset;
  row.generation = slot.generation;
  row.check = static_cast<uint32_t>(slot.checksum);
  row.length = slot.length;
  row.holder = kSelfHolder;
  row.flags = kRecordResident;
  return row;
}

uint32_t Pool::Impl::find_committed(const Digest& digest) const {
  const uint32_t id = slots.find(digest);
  return id != kNoSlot && slots[id].state == SlotState::committed ? id : kNoSlot;
}

template <typename Busy>
bool Pool::Impl::wait_while(const Busy& busy, Deadline deadline) {
  ++settle_waiters;
  while (busy() && settlement.wait_until(mutex, deadline.at)) {
  }
  --settle_waiters;
  return !busy();
}

void Pool::Impl::pin(uint32_t id) {
  Slot& slot = slots[id];
  if (slot.pins++ == 0) space.hold_down(slot);
  ++counters.pins;
}

void Pool::Impl::unpin(uint32_t id) {
  Slot& slot = slots[id];
  assert(slot.pins > 0 && (slot.state == SlotState::committed || slot.state == SlotState::removed));
  --counters.pins;
  if (--slot.pins > 0) return;
  space.let_go(slot);
  if (slot.state == SlotState::removed)
    free_slot(id);
  else
    recency.unpinned(id);
  settled();
}

void Pool::Impl::abort(uint32_t id) {
  Slot& slot = slots[id];
  assert(slot.state == SlotState::reserved);
  slots.erase(id);
  slot.pins = 0;
  space.let_go(slot);
  free_slot(id);
  --counters.reserved;
}

ReserveOutcome Pool::Impl::reserve_one(const PageRequest& request, uint32_t parent,
                                       const PageNamespace& ns, Replace replace,
                                       std::vector<RecordRow>& evicted, uint32_t& id) {
  const uint64_t stride = space.stride_of(request.length);
  id = slots.find(request.digest);
  if (id != kNoSlot) {
    if (slots[id].state == SlotState::reserved) return ReserveOutcome::busy;
    if (slots[id].length == request.length) return ReserveOutcome::present;
    // Same key, another length: the old page is wrong for everyone who asks now.
    if (replace == Replace::no) return ReserveOutcome::newer;
    if (is_in_use(slots[id])) return ReserveOutcome::busy;
  }
  if (request.length > kPageBytesMax || stride > space.capacity_bytes())
    return ReserveOutcome::too_large;
  if (id != kNoSlot) drop(id, counters.removals, evicted);
  if (namespaces.quotas && !make_room_in(ns.slot, stride, evicted)) {
    id = kNoSlot;
    return ReserveOutcome::no_space;
  }
  const uint32_t parent_uses = parent == kNoSlot ? 0 : slots[parent].uses;
  id = take_slot(space.class_of_stride(stride), evicted);
  if (id == kNoSlot) {
    ++counters.no_space;
    return ReserveOutcome::no_space;
  }
  Slot& slot = slots[id];
  invalidate_header(header_of(slot));
  slot.digest = request.digest;
  slot.length = request.length;
  slot.namespace_slot = ns.slot;
  slot.pins = 1;  // the reservation's pin; `take` already holds the span down for it
  ++slot.uses;
  slot.parent = parent;
  slot.parent_uses = parent_uses;
  slots.insert(id);
  namespaces.pages[ns.slot].bytes += space.span_of(slot).size_class->stride_bytes;
  if (memory.file() != nullptr) write_note(slot, ns);
  ++counters.reserved;
  return ReserveOutcome::reserved;
}

void Pool::Impl::enter(uint32_t id, Generation page_generation, const PinnedPage& page) {
  Slot& slot = slots[id];
  assert(slot.state == SlotState::reserved);
  slot.generation = page_generation;
  slot.checksum = page.checksum;
  slot.offers = 0;
  slot.leaving = false;
  write_header(slot, page.born);
  slot.state = SlotState::committed;
  --counters.reserved;
  ++counters.pins;
  ++counters.sets;
  ++counters.keys;
  ++namespaces.pages[slot.namespace_slot].keys;
  counters.payload_bytes += slot.length;
}

void Pool::Impl::use(uint32_t id, uint32_t before, uint32_t now_ms) {
  slots[id].moves = 0;
  set_hinted(slots[id], false);
  if (slots[id].ahead) ++counters.ahead_used;
  slots[id].ahead = false;
  recency.used(id, before, now_ms);
}

void Pool::Impl::write_header(const Slot& slot, Born born) {
  SlotHeader header;
  header.digest = slot.digest;
  header.incarnation = incarnation;
  header.generation = slot.generation;
  header.length = slot.length;
  header.checksum = slot.checksum;
  header.born = born;
  publish_header(header_of(slot), header);
}

void Pool::Impl::settled() {
  if (settle_waiters > 0) settlement.notify_all();
}

// --- public calls ----------------------------------------------------------------------------

Pool::Pool(const PoolConfig& config, EvictSink on_evict, NamespaceJudge judge)
    : impl_(std::make_unique<Impl>(config, std::move(on_evict), judge)) {}
Pool::~Pool() = default;

std::byte* Pool::base() const { return impl_->memory.base(); }
uint64_t Pool::size_bytes() const { return impl_->memory.size_bytes(); }
Generation Pool::next_generation() { return impl_->next_generation(); }

void Pool::reserve(std::span<const PageRequest> requests, const Digest* parent,
                   const PageNamespace& ns, std::span<Reservation> out, Replace replace) {
  assert(out.size() >= requests.size());
  std::vector<RecordRow> evicted;
  {
    MutexLock lock(impl_->mutex);
    if (impl_->growing) impl_->wait_for_growth(requests);
    const uint32_t now_ms = impl_->now_ms();
    uint32_t before = parent == nullptr ? kNoSlot : impl_->slots.find(*parent);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i + 1 < requests.size()) impl_->slots.prefetch(requests[i + 1].digest);
      uint32_t id = kNoSlot;
      out[i] = {};
      out[i].outcome = impl_->reserve_one(requests[i], before, ns, replace, evicted, id);
      if (out[i].outcome == ReserveOutcome::present) {
        impl_->use(id, before, now_ms);
        impl_->pin(id);
      }
      if (out[i].outcome == ReserveOutcome::present || out[i].outcome == ReserveOutcome::reserved)
        out[i].page = impl_->page_of(id);
      if (id != kNoSlot) before = id;
    }
    order_invalidation_before_payload();
    impl_->wake_evictor();
  }
  if (!evicted.empty() && impl_->on_evict) impl_->on_evict(evicted);
}

void Pool::commit(std::span<const PinnedPage> pages, std::span<RecordRow> rows,
                  const std::optional<Adoption>& adoption, std::span<const uint8_t> elsewhere) {
  assert(rows.size() >= pages.size());
  for (const PinnedPage& page : pages) __builtin_prefetch(page.header, 1);
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  uint32_t before = kNoSlot, duplicate_before = kNoSlot;
  for (size_t i = 0; i < pages.size(); ++i) {
    const uint32_t id = pages[i].slot;
    impl_->enter(id, impl_->next_generation(), pages[i]);
    Slot& slot = impl_->slots[id];
    slot.moves = adoption ? adoption->moves : 0;
    if (!adoption) impl_->counters.set_bytes += slot.length;
    impl_->set_origin(slot, !adoption           ? Origin::set
                            : adoption->replica ? Origin::copied
                                                : Origin::moved);
    const uint32_t chain_parent = impl_->slots.parent_of(id);
    if (adoption && adoption->ahead) {
      slot.ahead = true;
      ++impl_->counters.ahead;
      impl_->recency.duplicated(id, duplicate_before, now_ms);
      duplicate_before = id;
    } else if (adoption) {
      impl_->recency.adopted(id, before, now_ms - std::min(now_ms, adoption->idle_ms));
    } else if (!elsewhere.empty() && elsewhere[i] != 0) {
      impl_->recency.duplicated(id, duplicate_before, now_ms);
      duplicate_before = id;
    } else {
      impl_->recency.committed(id, chain_parent != kNoSlot ? chain_parent : before, now_ms,
                               impl_->evicted_keys.pools_needed(slot.digest) != 0);
    }
    if (impl_->memory.file() != nullptr) stamp_note(impl_->note_of(slot), slot.stamp);
    rows[i] = impl_->row_of(slot);
    before = id;
  }
  impl_->settled();
}

void Pool::set_uses(std::span<const PinnedPage> pages, std::span<const uint8_t> uses) {
  MutexLock lock(impl_->mutex);
  for (size_t i = 0; i < pages.size(); ++i) impl_->slots[pages[i].slot].reads_in_all = uses[i];
}

void Pool::abort(std::span<const PinnedPage> pages) {
  MutexLock lock(impl_->mutex);
  for (const PinnedPage& page : pages) impl_->abort(page.slot);
  impl_->settled();
}

void Pool::give_back(std::span<const PinnedPage> slots) {
  MutexLock lock(impl_->mutex);
  for (const PinnedPage& page : slots) {
    if (!page) continue;
    if (impl_->slots[page.slot].state == SlotState::reserved)
      impl_->abort(page.slot);
    else
      impl_->unpin(page.slot);
  }
  impl_->settled();
  impl_->wake_evictor();
}

bool Pool::wait_settled(const Digest& digest, Deadline deadline) {
  MutexLock lock(impl_->mutex);
  const auto is_reserved = [&] {
    impl_->mutex.assert_held();
    const uint32_t id = impl_->slots.find(digest);
    return id != kNoSlot && impl_->slots[id].state == SlotState::reserved;
  };
  return impl_->wait_while(is_reserved, deadline);
}

bool Pool::wait_replaceable(const Digest& digest, uint32_t length, Deadline deadline) {
  MutexLock lock(impl_->mutex);
  const auto is_pinned_otherwise = [&] {
    impl_->mutex.assert_held();
    const uint32_t id = impl_->find_committed(digest);
    return id != kNoSlot && impl_->slots[id].length != length && impl_->is_in_use(impl_->slots[id]);
  };
  return impl_->wait_while(is_pinned_otherwise, deadline);
}

void Pool::lengths(std::span<const Digest> digests, std::span<uint32_t> out) const {
  MutexLock lock(impl_->mutex);
  for (size_t i = 0; i < digests.size(); ++i) {
    const uint32_t id = impl_->find_committed(digests[i]);
    out[i] = id == kNoSlot ? 0 : impl_->slots[id].length;
  }
}

void Pool::rows_of(std::span<const PinnedPage> pages, std::span<RecordRow> rows) const {
  assert(rows.size() >= pages.size());
  MutexLock lock(impl_->mutex);
  for (size_t i = 0; i < pages.size(); ++i) rows[i] = impl_->row_of(impl_->slots[pages[i].slot]);
}

void Pool::withdrawals_of(std::span<const PinnedPage> pages, std::vector<RecordRow>& rows) const {
  MutexLock lock(impl_->mutex);
  for (const PinnedPage& page : pages) {
    const Slot& slot = impl_->slots[page.slot];
    if (slot.state != SlotState::removed) continue;
    RecordRow row = impl_->row_of(slot);
    row.flags = kRecordWithdraw;
    rows.push_back(row);
  }
}

void Pool::pin(std::span<const Digest> digests, const Digest* parent, bool touch,
               std::span<PinnedPage> out) {
  assert(out.size() >= digests.size());
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  uint32_t before = parent == nullptr ? kNoSlot : impl_->find_committed(*parent);
  for (size_t i = 0; i < digests.size(); ++i) {
    if (i + 1 < digests.size()) impl_->slots.prefetch(digests[i + 1]);
    out[i] = {};
    const uint32_t id = impl_->find_committed(digests[i]);
    if (id == kNoSlot) continue;
    if (touch) {
      if (before == kNoSlot) before = impl_->slots.parent_of(id);
      impl_->use(id, before, now_ms);
      count_read(impl_->slots[id], now_ms);
      before = id;
    }
    impl_->pin(id);
    out[i] = impl_->page_of(id);
  }
}

void Pool::pin_records(std::span<const PageWanted> wanted, std::span<PinnedPage> out) {
  constexpr size_t kSlotsAhead = 4;
  assert(out.size() >= wanted.size());
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  for (const PageWanted& page : wanted) impl_->slots.prefetch(page.digest);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i + kSlotsAhead < wanted.size()) impl_->slots.prefetch_slot(wanted[i + kSlotsAhead].digest);
    out[i] = {};
    const uint32_t id = impl_->find_committed(wanted[i].digest);
    if (id == kNoSlot) continue;
    const Slot& slot = impl_->slots[id];
    if (slot.offset != wanted[i].offset || slot.generation != wanted[i].generation ||
        slot.length != wanted[i].length)
      continue;
    if (slot.moves != kMovesElsewhere) {
      impl_->use(id, impl_->slots.parent_of(id), now_ms);
      count_read(impl_->slots[id], now_ms);
    }
    impl_->pin(id);
    out[i] = impl_->page_of(id);
    __builtin_prefetch(out[i].header);
  }
}

void Pool::unpin(std::span<const PinnedPage> pages) {
  MutexLock lock(impl_->mutex);
  for (const PinnedPage& page : pages)
    if (page) impl_->unpin(page.slot);
  // The evictor may have been waiting for one of these pages.
  impl_->wake_evictor();
}

void Pool::contains(std::span<const Digest> digests, bool touch, std::span<uint8_t> out,
                    bool read) {
  assert(out.size() >= digests.size());
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  uint32_t before = kNoSlot;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (i + 1 < digests.size()) impl_->slots.prefetch(digests[i + 1]);
    const uint32_t id = impl_->find_committed(digests[i]);
    out[i] = id != kNoSlot;
    if (id == kNoSlot || !touch) continue;
    if (read) count_read(impl_->slots[id], now_ms);
    if (before == kNoSlot) before = impl_->slots.parent_of(id);
    impl_->use(id, before, now_ms);
    before = id;
  }
}

size_t Pool::remove(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  MutexLock lock(impl_->mutex);
  size_t removed = 0;
  for (const Digest& digest : digests) {
    const uint32_t id = impl_->find_committed(digest);
    if (id == kNoSlot) continue;
    impl_->drop(id, impl_->counters.removals, rows);
    ++removed;
  }
  return removed;
}

void Pool::drop_given(std::span<const RecordRow> records, std::vector<RecordRow>& rows) {
  MutexLock lock(impl_->mutex);
  for (const RecordRow& record : records) {
    const uint32_t id = impl_->find_committed(record.digest);
    if (id == kNoSlot || impl_->slots[id].generation != record.generation) continue;
    if (!impl_->slots[id].leaving) continue;
    impl_->drop(id, impl_->counters.given, rows);
  }
}

size_t Pool::sweep_namespace(uint32_t namespace_slot, size_t limit, std::vector<RecordRow>& rows) {
  MutexLock lock(impl_->mutex);
  size_t removed = 0;
  for (; removed < limit; ++removed) {
    const auto pages = impl_->namespaces.pages.find(namespace_slot);
    if (pages == impl_->namespaces.pages.end() || pages->second.pages.empty()) break;
    impl_->drop(pages->second.pages.coldest(impl_->slots.data()), impl_->counters.removals, rows);
  }
  return removed;
}

bool Pool::scan(uint32_t& slot, std::vector<RecordRow>& rows) const {
  return impl_->visit_committed(slot, [&](const Slot& one, uint32_t) {
    impl_->mutex.assert_held();
    rows.push_back(impl_->row_of(one));
  });
}

PoolStats Pool::stats() const {
  MutexLock lock(impl_->mutex);
  PoolStats stats = impl_->counters;
  stats.capacity_bytes = impl_->space.capacity_bytes();
  stats.ready_bytes = impl_->space.ready_bytes();
  stats.used_bytes = impl_->space.used_bytes();
  impl_->space.for_each_class([&](const SizeClass& one) {
    stats.classes.push_back(
        {one.stride_bytes, one.slots, one.used, one.spans, one.evictions, one.immovable});
  });
  std::ranges::sort(stats.classes, {}, &PoolStats::Class::stride_bytes);
  return stats;
}

}  // namespace peercached
