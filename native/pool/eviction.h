// The eviction policy: the order in which pages leave the pool.
//
// The pool tells the policy what happens to its pages, and asks it for the page to evict next. What
// else makes room costly, the places of the pages, is not the policy's business (victims.h).
//
// A policy orders three kinds of lists of committed pages: its own of the whole pool, and those of
// each SizeClass and each NamespacePages. It links them through Slot, where it also keeps `stamp`
// and `touched_ms`. A drain offers pages in descending order of their stamps. A warm restart stores
// the stamps, and brings the pages back in ascending order.
//
// All calls come under the pool's mutex, at each use of a page. So each takes a few steps, whatever
// the number of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pool/quota.h"
#include "pool/space.h"

namespace peercached {

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // --- what happens. `before`: the page before it in its chain or its batch, or kNoSlot.
  // `evicted_lately`: a somewhat larger pool would still have had this page.
  virtual void committed(uint32_t id, uint32_t before, uint32_t now_ms, bool evicted_lately) = 0;
  virtual void used(uint32_t id, uint32_t before, uint32_t now_ms) = 0;
  // Committed, but last used on another node, at `touched_ms`. `before`: of this batch.
  virtual void adopted(uint32_t id, uint32_t before, uint32_t touched_ms) = 0;
  // Committed now, while another pool has the page, too. `before`: of this batch, also such a page.
  virtual void duplicated(uint32_t id, uint32_t before, uint32_t now_ms) = 0;
  // Comes from an earlier process.
  virtual void restored(uint32_t id, uint64_t stamp) = 0;
  // Its last pin has ended.
  virtual void unpinned(uint32_t id) = 0;
  virtual void removed(uint32_t id) = 0;

  // --- what to evict
  // The page to evict next, of all or of some. Never a pinned one; kNoSlot: there is no other.
  virtual uint32_t next() = 0;
  virtual uint32_t next_of(SizeClass& size_class) = 0;
  virtual uint32_t next_of(NamespacePages& own) = 0;
  // The next `count` pages to go, in order. Pinned pages are included.
  virtual void first(size_t count, std::vector<uint32_t>& ids) const = 0;
  // What the pool loses with a page: from 0, the next to be evicted, to 1, used just now.
  virtual double worth(uint32_t id) const = 0;
};

// The policy of the pool.
std::unique_ptr<EvictionPolicy> make_eviction_policy(SlotTable& slots, Space& space,
                                                     Namespaces& namespaces);

}  // namespace peercached
