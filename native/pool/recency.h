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
// it. A use moves it up like any other page (docs/page-placement.md).
//
// Eviction "parks" a pinned or spared page that it meets at the cold end: it takes the page off the
// lists. So later evictions do not meet it again. Its last unpin puts it back at the cold end.
//
// Within a namespace a page is placed behind its predecessor, too, if it is there in the pool. That
// order matters only where a namespace has a quota.
//
// A retained page (hinted.cc) that eviction meets is parked, too, in a list of its own. Eviction
// takes the pages of that list when nothing else is left.
//
// The cost of room also depends on the places of the pages: see victims.h. The lists are linked
// through Slot, which also has `stamp` and `touched_ms`. A drain offers pages in descending order
// of their stamps. A warm restart stores the stamps, and brings the pages back in ascending order.
//
// The pool makes these calls under its mutex, at each use of a page. So each takes only a few
// steps, for any number of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool/quota.h"
#include "pool/space.h"

namespace peercached {

class Recency {
 public:
  Recency(SlotTable& slots, Space& space, Namespaces& namespaces)
      : slots_(slots), space_(space), namespaces_(namespaces) {}

  // --- what happens. `before`: the page before it in its chain or its batch, or kNoSlot.
  // `evicted_lately`: a somewhat larger pool would still have had this page.
  void committed(uint32_t id, uint32_t before, uint32_t now_ms, bool evicted_lately);
  void used(uint32_t id, uint32_t before, uint32_t now_ms);
  // Committed, but last used on another node, at `touched_ms`. Placed directly behind `before`, a
  // page of this batch of any age, or else among the pages set at that time.
  void adopted(uint32_t id, uint32_t before, uint32_t touched_ms);
  // Committed now, while another pool has the page, too. Placed like a page that was used nearly as
  // long ago as the one to be evicted next. `before`: of this batch, also such a page.
  void duplicated(uint32_t id, uint32_t before, uint32_t now_ms);
  // Comes from an earlier process. Call it in the order of the stamps. These do not tell whether a
  // page was used again.
  void restored(uint32_t id, uint64_t stamp);
  // Its last pin has ended, or it is spared no more.
  void unpinned(uint32_t id);
  // Another pool has taken it: it goes before the pages that only this one has.
  void taken(uint32_t id);
  void removed(uint32_t id);
  // It was brought here by a hint: placed as a duplicate.
  void hinted(uint32_t id, uint32_t before, uint32_t now_ms);
  // A hint says that nobody needs it any more.
  void first_to_go(uint32_t id);
  // It is retained no more.
  void unretained(uint32_t id);

  // --- the order of eviction
  // The page to evict next, of all or of some. Never a pinned one, nor a spared one except within a
  // namespace; kNoSlot: there is no other. next() gives a retained page if there is no other.
  uint32_t next();
  uint32_t next_of(SizeClass& size_class);
  uint32_t next_of(NamespacePages& own);
  // The next `count` pages to go, in order. Pinned pages are included.
  void first(size_t count, std::vector<uint32_t>& ids) const;
  // The pool's loss with a page: from 0, the next to be evicted, to 1, used just now.
  double worth(uint32_t id) const;

 private:
  void place(uint32_t id, uint32_t before, uint32_t now_ms);
  bool can_anchor(uint32_t anchor, uint32_t id) const;
  void place_in_front(uint32_t id, uint32_t touched_ms);
  void place_behind(uint32_t id, uint32_t anchor, uint32_t touched_ms);
  // Places it behind `anchor` in its namespace if it is behind `anchor` in the pool.
  void place_in_namespace(uint32_t id, uint32_t anchor);
  void enter(uint32_t id, uint64_t stamp, uint32_t touched_ms);
  void unlist(uint32_t id);
  void park(uint32_t id);
  uint32_t same_class_before(uint32_t id, uint32_t anchor);
  uint32_t last_used_after(uint32_t touched_ms) const;
  template <Links Slot::*links>
  uint32_t coldest_evictable(OrderedPages<links>& pages);
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
  SlotList<&Slot::recency> parked_;  // retained pages, those that were passed over first in front
  uint64_t clock_bytes_ = 0;         // grows with every touch, by the page's bytes
  // The last adopted page placed by age. The search for the next one's place starts here.
  uint32_t finger_ = kNoSlot;
};

}  // namespace peercached
