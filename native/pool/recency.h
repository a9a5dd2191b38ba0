// Which page goes first: least recently used over the whole pool, and a chain from its tail.
//
// A page without the pages before it in its chain is worthless, so a page is placed directly
// behind (colder than) the page before it if that is still among the hottest, else in front of
// all. Every page also has its place in the same order among the pages of its class.
//
// A pinned page that eviction meets at the cold end is taken off the lists ("parked"), so that
// it is met once and not by every eviction; it returns to the cold end with its last unpin.
//
// Not thread safe: the pool's mutex guards it.
#pragma once

#include <cstdint>

#include "pool/space.h"

namespace peercached {

class Recency {
 public:
  Recency(SlotTable& slots, Space& space) : slots_(slots), space_(space) {}

  // Places a committed page anew, behind `anchor` if that can be one, else in front.
  void touch(uint32_t id, uint32_t anchor, uint32_t now_ms);
  // A page that was used elsewhere, last at `touched_ms`: among those used then.
  void place_aged(uint32_t id, uint32_t touched_ms);
  // Directly behind `anchor`, wherever that is.
  void place_behind(uint32_t id, uint32_t anchor, uint32_t touched_ms);
  // The page before `id` in its chain if it is a committed page, else kNoSlot.
  uint32_t parent_of(uint32_t id) const;
  void remove(uint32_t id);
  // A page of an earlier process, in front of all: in the order of their stamps.
  void restore(uint32_t id, uint64_t stamp);

  // Coldest page that is not pinned, or kNoSlot.
  uint32_t coldest();
  uint32_t coldest_of(SizeClass& size_class);
  void unpinned(uint32_t id);

  // How recent: 0 is the coldest page of all, 1 a page touched just now.
  double warmth(uint32_t id) const;
  // The next colder or hotter page, pinned or not, from the cold end.
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
  // Where the last aged page went: the next one's place is not far from it.
  uint32_t finger_ = kNoSlot;
};

}  // namespace peercached
