// Metadata of one slot, kept outside the pool. Neither remote readers nor lookups ever wait for the
// memory of the page itself.
//
// Two cache lines per slot: fields for finding and pinning, then fields for placing and evicting.
// Lists are intrusive and linked by slot number: no allocation, and O(1) removal from any list.
#pragma once

#include <cstdint>

#include "common/types.h"

namespace peercached {

inline constexpr uint32_t kNoSlot = UINT32_MAX;
// Slot::moves of a page that another pool takes or has: it moves no more.
inline constexpr uint8_t kMovesElsewhere = UINT8_MAX;

enum class SlotState : uint8_t {
  unused,     // the number belongs to no span
  free,       // in its class's free list
  reserved,   // being filled; visible only to threads that set the same page
  committed,  // holds a page
  removed,    // dropped while pinned: invisible, freed by its last unpin
};

// How a page came into this pool.
enum class Origin : uint8_t {
  set,
  moved,   // from another pool, which gave it up
  copied,  // from another pool, which keeps it: a replica
};

struct Links {
  uint32_t hotter = kNoSlot;
  uint32_t colder = kNoSlot;
};

struct alignas(64) Slot {
  Digest digest;
  Generation generation = 0;
  uint64_t checksum = 0;
  uint32_t length = 0;
  uint32_t pins = 0;
  uint32_t chain_next = kNoSlot;  // hash chain of the index
  uint32_t span = 0;
  SlotState state = SlotState::unused;
  // Kept by the eviction order (recency.h), with the fields below.
  bool listed = false;       // in the lists of the pool and of its class
  bool reused = false;       // in the lists of pages used again
  uint8_t reads_in_all = 0;  // since it was committed; a full count stays full
  uint32_t touched_ms = 0;   // its last use
  uint8_t moves = 0;         // from pool to pool since its last use; or kMovesElsewhere
  Origin origin = Origin::set;
  bool kept = false;     // one of its pins is that of Pool::keep()
  uint8_t offers = 0;    // under way: if a peer takes the page, we drop it
  bool spared = false;   // by eviction, while offered (Pool::begin_offer)
  bool leaving = false;  // a peer has taken it: withdrawn, and dropped soon
  // Of hints (hinted.cc).
  bool retained : 1 = false;  // eviction takes other pages first
  bool parked : 1 = false;    // retained, and in the list of pages that eviction has passed over
  bool hinted : 1 = false;    // brought here by a hint, and not used since
  bool ahead : 1 = false;     // brought here with others (Adoption::ahead), and not used since

  alignas(64) uint64_t offset = 0;  // of the header, from the pool's start
  uint64_t stamp = 0;               // greater: worth more
  Links recency;                    // over the whole pool
  Links in_class;                   // with the free slots, if it is free
  Links in_namespace;
  uint32_t namespace_slot = 0;
  uint32_t uses = 0;  // reservations so far: distinguishes pages that used this slot
  // The page before this one in its chain, if it had a slot when this one was reserved.
  uint32_t parent = kNoSlot;
  uint32_t parent_uses = 0;
  // Reads in this window of time and in the one before it (reads.h).
  uint32_t window = 0;
  uint16_t reads = 0, reads_before = 0;
};
static_assert(sizeof(Slot) == 128);

// A list of slots, hottest first.
template <Links Slot::*links>
class SlotList {
 public:
  bool empty() const { return hottest_ == kNoSlot; }
  uint32_t hottest() const { return hottest_; }
  uint32_t coldest() const { return coldest_; }

  // Inserts on the colder side of `anchor`; kNoSlot: at the front.
  void insert_behind(Slot* slots, uint32_t anchor, uint32_t id) {
    const uint32_t colder = anchor == kNoSlot ? hottest_ : (slots[anchor].*links).colder;
    slots[id].*links = {anchor, colder};
    (anchor == kNoSlot ? hottest_ : (slots[anchor].*links).colder) = id;
    (colder == kNoSlot ? coldest_ : (slots[colder].*links).hotter) = id;
  }
  void push_hottest(Slot* slots, uint32_t id) { insert_behind(slots, kNoSlot, id); }
  void push_coldest(Slot* slots, uint32_t id) { insert_behind(slots, coldest_, id); }

  void remove(Slot* slots, uint32_t id) {
    const Links at = slots[id].*links;
    (at.hotter == kNoSlot ? hottest_ : (slots[at.hotter].*links).colder) = at.colder;
    (at.colder == kNoSlot ? coldest_ : (slots[at.colder].*links).hotter) = at.hotter;
    slots[id].*links = {};
  }

 private:
  uint32_t hottest_ = kNoSlot;
  uint32_t coldest_ = kNoSlot;
};

// The committed pages of the pool, of a class or of a namespace, as recency.h orders
// them. Within each list, stamps descend from the hottest to the coldest.
template <Links Slot::*links>
struct OrderedPages {
  SlotList<links> once;    // set, and not used since
  SlotList<links> reused;  // used again

  SlotList<links>& list_of(const Slot& slot) { return slot.reused ? reused : once; }
  const SlotList<links>& list_of(const Slot& slot) const { return slot.reused ? reused : once; }
  bool empty() const { return once.empty() && reused.empty(); }
  void remove(Slot* slots, uint32_t id) { list_of(slots[id]).remove(slots, id); }
  // The one with the lowest stamp; kNoSlot: there is none.
  uint32_t coldest(const Slot* slots) const {
    const uint32_t a = once.coldest(), b = reused.coldest();
    if (a == kNoSlot || b == kNoSlot) return a == kNoSlot ? b : a;
    return slots[a].stamp <= slots[b].stamp ? a : b;
  }
};

}  // namespace peercached
