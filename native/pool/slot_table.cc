#include "pool/slot_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

namespace peercached {

namespace {
constexpr uint64_t kPoolBytesPerHead = 16 * 1024;
constexpr uint64_t kHeadsMin = 1024;
}  // namespace

SlotTable::SlotTable(uint64_t pool_bytes, uint64_t stride_bytes_min)
    : heads_(std::bit_ceil(std::max(kHeadsMin, pool_bytes / kPoolBytesPerHead)), kNoSlot) {
  const uint64_t slots_max = pool_bytes / stride_bytes_min + 1;
  if (slots_max >= kNoSlot)
    throw std::runtime_error("pool_size is " + std::to_string(pool_bytes) + " bytes: the most is " +
                             std::to_string((kNoSlot - 1) * stride_bytes_min) + " bytes");
  slots_max_ = static_cast<uint32_t>(slots_max);
  void* mapped = mmap(nullptr, slots_max * sizeof(Slot), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(),
                            "no address space for the pool's slot table (" +
                                std::to_string(slots_max * sizeof(Slot)) + " bytes)");
  slots_ = static_cast<Slot*>(mapped);
}

SlotTable::~SlotTable() { munmap(slots_, size_t{slots_max_} * sizeof(Slot)); }

uint32_t SlotTable::take_number() {
  if (unused_ != kNoSlot) {
    const uint32_t id = unused_;
    unused_ = slots_[id].chain_next;
    slots_[id].chain_next = kNoSlot;
    return id;
  }
  assert(end_ < slots_max_);
  new (&slots_[end_]) Slot();
  return end_++;
}

void SlotTable::give_number(uint32_t id) {
  slots_[id].state = SlotState::unused;
  slots_[id].chain_next = unused_;
  unused_ = id;
}

uint32_t SlotTable::find(const Digest& digest) const {
  uint32_t id = heads_[bucket(digest)];
  while (id != kNoSlot && slots_[id].digest != digest) id = slots_[id].chain_next;
  return id;
}

uint32_t SlotTable::parent_of(uint32_t id) const {
  const Slot& slot = slots_[id];
  if (slot.parent == kNoSlot) return kNoSlot;
  const Slot& parent = slots_[slot.parent];
  const bool same_page = parent.state == SlotState::committed && parent.uses == slot.parent_uses;
  return same_page ? slot.parent : kNoSlot;
}

void SlotTable::insert(uint32_t id) {
  uint32_t& head = heads_[bucket(slots_[id].digest)];
  slots_[id].chain_next = head;
  head = id;
}

void SlotTable::erase(uint32_t id) {
  uint32_t* at = &heads_[bucket(slots_[id].digest)];
  while (*at != id) {
    assert(*at != kNoSlot);
    at = &slots_[*at].chain_next;
  }
  *at = slots_[id].chain_next;
  slots_[id].chain_next = kNoSlot;
}

}  // namespace peercached
