// Eviction order: least recently used over the whole pool, each chain from its tail, and pages that
// were used again later than others.
//
// Most pages are never asked for again, and a few are asked for all the time. So there are two
// orders by last use: of pages that were set and not used since, and of pages that were. The latter
// count as used later than they were, by as many bytes as the pool has. The page with the lowest
// stamp of both goes first. A page that is set again soon after its eviction counts as used again:
// it was asked for in between. On the public trace of conversations, a pool of 5 % of all pages
// finds 21.4 % of the blocks instead of 19.6 %, and one of 2 % 9.4 % instead of 7.9 %
// (docs/sizing.md).
//
// A page is worthless without the pages before it in its chain. So a page is placed directly behind
// (colder than) its predecessor while that is still among the hottest; otherwise it goes to the
// front. Each class keeps the same order among its own pages.
//
// A page that another pool has, too, is placed near the cold end: if it goes, the cluster still has
// it. A use moves it up like any other page (docs/spill.md).
//
// Eviction "parks" a pinned page that it meets at the cold end: it takes the page off the lists. So
// later evictions do not meet it again. Its last unpin puts it back at the cold end.
//
// Within a namespace a page is placed behind its predecessor, too, if it is there in the pool. That
// order matters only where a namespace has a quota.
#pragma once

#include <cstdint>
#include <vector>

#include "pool/eviction.h"

namespace peercached {

class Recency final : public EvictionPolicy {
 public:
  Recency(SlotTable& slots, Space& space, Namespaces& namespaces)
      : slots_(slots), space_(space), namespaces_(namespaces) {}

  void committed(uint32_t id, uint32_t before, uint32_t now_ms, bool evicted_lately) override;
  void used(uint32_t id, uint32_t before, uint32_t now_ms) override;
  // Placed directly behind `before`, however old that is, or among the pages set at that time.
  void adopted(uint32_t id, uint32_t before, uint32_t touched_ms) override;
  // Placed like a page that was used nearly as long ago as the one to be evicted next.
  void duplicated(uint32_t id, uint32_t before, uint32_t now_ms) override;
  // In the order of the stamps, which tells nothing of later uses.
  void restored(uint32_t id, uint64_t stamp) override;
  void unpinned(uint32_t id) override;
  void removed(uint32_t id) override;

  uint32_t next() override;
  uint32_t next_of(SizeClass& size_class) override;
  uint32_t next_of(NamespacePages& own) override;
  void first(size_t count, std::vector<uint32_t>& ids) const override;
  double worth(uint32_t id) const override;

 private:
  void place(uint32_t id, uint32_t before, uint32_t now_ms);
  bool can_anchor(uint32_t anchor, uint32_t id) const;
  void place_in_front(uint32_t id, uint32_t touched_ms);
  void place_behind(uint32_t id, uint32_t anchor, uint32_t touched_ms);
  // Places it behind `anchor` in its namespace if it is behind `anchor` in the pool.
  void place_in_namespace(uint32_t id, uint32_t anchor);
  void enter(uint32_t id, uint64_t stamp, uint32_t touched_ms);
  void unlist(uint32_t id);
  uint32_t same_class_before(uint32_t id, uint32_t anchor);
  uint32_t last_used_after(uint32_t touched_ms) const;
  template <Links Slot::*links>
  uint32_t coldest_unpinned(OrderedPages<links>& pages);
  uint64_t bonus(const Slot& slot) const { return slot.reused ? space_.capacity_bytes() : 0; }
  uint64_t last_use(uint32_t id) const { return slots_[id].stamp - bonus(slots_[id]); }
  SizeClass& class_of(uint32_t id) { return *space_.span_of(slots_[id]).size_class; }
  OrderedPages<&Slot::in_namespace>& namespace_of(uint32_t id) {
    return namespaces_.pages.find(slots_[id].namespace_slot)->second.pages;
  }

  SlotTable& slots_;
  Space& space_;
  Namespaces& namespaces_;
  OrderedPages<&Slot::recency> pages_;
  uint64_t clock_bytes_ = 0;  // grows with every touch, by the page's bytes
  // The last adopted page placed by age. The search for the next one's place starts here.
  uint32_t finger_ = kNoSlot;
};

}  // namespace peercached
