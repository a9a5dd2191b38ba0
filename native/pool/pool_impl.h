// The pool's parts behind its single mutex. pool.cc implements the public calls, evictor.cc how
// pages leave.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "pool/memory.h"
#include "pool/page_note.h"
#include "pool/pool.h"
#include "pool/recency.h"
#include "pool/slot_table.h"
#include "pool/space.h"
#include "pool/victims.h"

namespace peercached {

struct Pool::Impl {
  Impl(const PoolConfig& config, EvictSink sink, const NamespaceJudge& judge);
  ~Impl();

  // --- pages
  std::byte* header_of(const Slot& slot) const REQUIRES(mutex) {
    return memory.base() + slot.offset;
  }
  std::byte* note_of(const Slot& slot) REQUIRES(mutex) {
    return header_of(slot) + space.span_of(slot).size_class->stride_bytes - sizeof(PageNote);
  }
  PinnedPage page_of(uint32_t id) const REQUIRES(mutex);
  RecordRow row_of(const Slot& slot) const REQUIRES(mutex);
  uint32_t find_committed(const Digest& digest) const REQUIRES(mutex);
  // Waits while busy() is true; false at the deadline. settled() makes it look again.
  template <typename Busy>
  bool wait_while(const Busy& busy, Deadline deadline) REQUIRES(mutex);
  void pin(uint32_t id) REQUIRES(mutex);
  void unpin(uint32_t id) REQUIRES(mutex);
  void abort(uint32_t id) REQUIRES(mutex);
  // Reserves a slot for this page; otherwise the outcome says why not. `parent` is a slot or
  // kNoSlot. `id` becomes the slot found or made for the digest, or kNoSlot.
  ReserveOutcome reserve_one(const PageRequest& request, uint32_t parent, const PageNamespace& ns,
                             Replace replace, std::vector<RecordRow>& evicted, uint32_t& id)
      REQUIRES(mutex);
  // Counts a committed page by its origin.
  void set_origin(Slot& slot, Origin origin) REQUIRES(mutex);
  // Until eviction starts.
  uint64_t free_bytes() const REQUIRES(mutex);
  // The committed page of this record; kNoSlot: it has gone, or was set anew.
  uint32_t recorded(const RecordRow& record) REQUIRES(mutex);
  void spare(Slot& slot) REQUIRES(mutex);
  void end_spare(Slot& slot) REQUIRES(mutex);
  IdlePage idle_page(const Slot& slot, uint32_t at_ms) const REQUIRES(mutex);
  // The pages of coldest(), before it chooses.
  void visit_coldest(uint64_t bytes, const std::function<void(const Slot&)>& visit) const
      REQUIRES(mutex);
  // All of them that are wanted, most recently used first.
  std::vector<IdlePage> warmest(const std::function<bool(const Slot&)>& wanted) const;
  // Calls visit(slot, now_ms) under the mutex for some slots from `next` on, and moves `next`
  // behind them. False: those were the last.
  template <typename Visit>
  bool visit_committed(uint32_t& next, const Visit& visit) const;
  void write_header(const Slot& slot, Born born) REQUIRES(mutex);

  void enter(uint32_t id, Generation generation, const PinnedPage& page) REQUIRES(mutex);
  void settled() REQUIRES(mutex);
  // Whether somebody has pinned it. Keeps do not count.
  bool is_in_use(const Slot& slot) const { return slot.pins > (slot.kept ? 1u : 0u); }
  // Ends the keep of a page that leaves. The page's last pin frees the slot as usual.
  void end_keep(Slot& slot) REQUIRES(mutex);
  void use(uint32_t id, uint32_t before, uint32_t now_ms) REQUIRES(mutex);
  // Hints (hinted.cc).
  uint32_t find_of(uint32_t namespace_slot, const Digest& digest) const REQUIRES(mutex);
  void set_hinted(Slot& slot, bool hinted) REQUIRES(mutex);
  void set_retained(Slot& slot, bool retained) REQUIRES(mutex);

  // --- a pool in a file (restore.cc)
  void restore(const NamespaceJudge& judge, const RemovalJudge& is_void) REQUIRES(mutex);
  void bring_back(const RecoveredPage& page, uint32_t id, uint32_t namespace_slot,
                  Generation page_generation) REQUIRES(mutex);
  void write_note(const Slot& slot, const PageNamespace& ns) REQUIRES(mutex);

  // --- eviction and removal
  // Removes a committed page from all lists. The slot is freed now or by its last unpin.
  // Counts the page in `counter`, or as given if a peer has taken it.
  void drop(uint32_t id, uint64_t& counter, std::vector<RecordRow>& rows) REQUIRES(mutex);
  void evict(uint32_t id, std::vector<RecordRow>& rows) REQUIRES(mutex);
  // Evicts because memory is short, not for a quota or an operator.
  void evict_for_room(uint32_t id, std::vector<RecordRow>& rows) REQUIRES(mutex);
  uint32_t take_slot(SizeClass& size_class, std::vector<RecordRow>& evicted) REQUIRES(mutex);
  // Makes room for `bytes` within the namespace's quota by evicting its own pages. False if they
  // are all in use.
  bool make_room_in(uint32_t namespace_slot, uint64_t bytes, std::vector<RecordRow>& evicted)
      REQUIRES(mutex);
  void free_slot(uint32_t id) REQUIRES(mutex);

  // --- growth (growth.cc)
  // Waits until there is room for these pages, while the pool grows.
  void wait_for_growth(std::span<const PageRequest> requests) REQUIRES(mutex);

  // --- background eviction
  // The watermarks, of what the pool has now.
  uint64_t high_bytes() const REQUIRES(mutex) { return share(high_watermark); }
  uint64_t low_bytes() const REQUIRES(mutex) { return share(low_watermark); }
  uint64_t share(double part) const REQUIRES(mutex) {
    return static_cast<uint64_t>(static_cast<double>(space.ready_bytes()) * part);
  }
  bool should_evict() REQUIRES(mutex);
  void wake_evictor() REQUIRES(mutex);
  void evict_in_background();

  uint32_t now_ms() const;
  Generation next_generation() { return generation.fetch_add(1, std::memory_order_relaxed); }

  const Incarnation incarnation;
  const EvictSink on_evict;
  const std::function<Position()> position;  // may be empty: nothing is removed
  PoolMemory memory;
  const double high_watermark, low_watermark;
  const TimePoint started = Clock::now();
  std::atomic<Generation> generation{1};

  mutable Mutex mutex;
  bool growing GUARDED_BY(mutex) = false;
  CondVar growth;
  CondVar settlement;
  uint32_t settle_waiters GUARDED_BY(mutex) = 0;
  SlotTable slots GUARDED_BY(mutex);
  Space space GUARDED_BY(mutex);
  Namespaces namespaces GUARDED_BY(mutex);
  EvictedKeys evicted_keys;
  Recency recency GUARDED_BY(mutex);
  VictimFinder victims GUARDED_BY(mutex);
  std::vector<uint32_t> chosen GUARDED_BY(mutex);  // scratch of take_slot
  uint64_t spared_bytes GUARDED_BY(mutex) = 0;
  PoolStats counters GUARDED_BY(mutex);
  std::vector<KeptPage> ended GUARDED_BY(mutex);  // take_ended(); each was kept once since then
  RecoveryReport recovery;                        // constant after construction

  CondVar pressure;
  // The evictor works from the high watermark down to the low one.
  bool above_high GUARDED_BY(mutex) = false;
  bool stopping GUARDED_BY(mutex) = false;
  std::thread evictor;
};

template <typename Visit>
bool Pool::Impl::visit_committed(uint32_t& next, const Visit& visit) const {
  constexpr uint32_t kSlotsPerTurn = 1024;
  MutexLock lock(mutex);
  const uint32_t at_ms = now_ms(), end = std::min(next + kSlotsPerTurn, slots.end());
  for (; next < end; ++next) {
    if (slots[next].state == SlotState::committed) visit(slots[next], at_ms);
  }
  return next < slots.end();
}

}  // namespace peercached
