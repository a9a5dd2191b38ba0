// All slots by number, and the index digest -> slot.
//
// The table reserves address space for as many slots as the pool can ever have. A number takes
// memory at its first use, so the table neither moves nor stops the pool to grow. The index is a
// fixed array of chain heads, one per 16 KiB of pool, and never rehashes. Even in a pool full of 4
// KiB pages the chains have only four entries on average.
//
// Not thread safe: the pool's mutex guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool/slot.h"

namespace peercached {

class SlotTable {
 public:
  SlotTable(uint64_t pool_bytes, uint64_t stride_bytes_min);
  ~SlotTable();
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;

  Slot& operator[](uint32_t id) { return slots_[id]; }
  const Slot& operator[](uint32_t id) const { return slots_[id]; }
  Slot* data() { return slots_; }
  const Slot* data() const { return slots_; }
  uint32_t end() const { return end_; }  // above every number used so far

  uint32_t take_number();
  void give_number(uint32_t id);

  // The slot reserved or committed under this digest, or kNoSlot.
  uint32_t find(const Digest& digest) const;
  // The page before it in its chain if that is still committed, else kNoSlot.
  uint32_t parent_of(uint32_t id) const;
  void prefetch(const Digest& digest) const { __builtin_prefetch(&heads_[bucket(digest)]); }
  void prefetch_slot(const Digest& digest) const {
    const uint32_t id = heads_[bucket(digest)];
    if (id != kNoSlot) __builtin_prefetch(&slots_[id]);
  }
  void insert(uint32_t id);
  void erase(uint32_t id);

 private:
  size_t bucket(const Digest& digest) const { return table_hash(digest) & (heads_.size() - 1); }

  Slot* slots_ = nullptr;
  uint32_t slots_max_ = 0;
  uint32_t end_ = 0;
  uint32_t unused_ = kNoSlot;  // free list, chained through chain_next
  std::vector<uint32_t> heads_;
};

}  // namespace peercached
