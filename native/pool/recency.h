// Eviction order: least recently used over the whole pool, and each chain from its tail.
//
// A page is worthless without the pages before it in its chain. So a page is placed directly behind
// (colder than) its predecessor while that is still among the hottest; otherwise it goes to the
// front. Each class keeps the same order among its own pages.
//
// Eviction "parks" a pinned page that it meets at the cold end: it takes the page off the lists. So
// later evictions do not meet it again. Its last unpin puts it back at the cold end.
//
// Not thread safe: the pool's mutex guards it.
#pragma once

#include <cstdint>

#include "pool/space.h"

namespace peercached {

class Recency {
 public:
  Recency(SlotTable& slots, Space& space) : slots_(slots), space_(space) {}

  // Moves a committed page behind `anchor` if that is recent enough, else to the front.
  void touch(uint32_t id, uint32_t anchor, uint32_t now_ms);
  // Places a page last used elsewhere, at `touched_ms`, among the pages used at that time.
  void place_aged(uint32_t id, uint32_t touched_ms);
  // Places it directly behind `anchor`, however old that is.
  void place_behind(uint32_t id, uint32_t anchor, uint32_t touched_ms);
  // The page before `id` in its chain if it is still committed, else kNoSlot.
  uint32_t parent_of(uint32_t id) const;
  void remove(uint32_t id);
  // Puts a page of an earlier process to the front. Call in ascending order of stamps.
  void restore(uint32_t id, uint64_t stamp);

  // The coldest page that is not pinned, or kNoSlot.
  uint32_t coldest();
  uint32_t coldest_of(SizeClass& size_class);
  void unpinned(uint32_t id);

  // How recent: 0 is the coldest page of all, 1 a page touched just now.
  double warmth(uint32_t id) const;
  // Walk from the cold end; pinned pages are included.
  uint32_t cold_end() const { return pages_.coldest(); }
  uint32_t hotter(uint32_t id) const { return slots_[id].recency.hotter; }

 private:
  bool can_anchor(uint32_t anchor) const;
  void place_in_front(uint32_t id, uint32_t touched_ms);
  void enter(uint32_t id, uint64_t stamp, uint32_t touched_ms);
  uint32_t same_class_before(uint32_t id, uint32_t anchor);
  uint32_t last_used_after(uint32_t touched_ms) const;
  void park(uint32_t id);
  SizeClass& class_of(uint32_t id) { return *space_.span_of(slots_[id]).size_class; }

  SlotTable& slots_;
  Space& space_;
  SlotList<&Slot::recency> pages_;
  uint64_t clock_bytes_ = 0;  // grows with every touch, by the page's bytes
  // The last aged page placed. The search for the next one's place starts here.
  uint32_t finger_ = kNoSlot;
};

}  // namespace peercached
