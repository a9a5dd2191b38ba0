#include "shard/holder_table.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace peercached {
namespace {

constexpr size_t kHolders = size_t{1} << 16;
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

}  // namespace

HolderTable::HolderTable(uint64_t capacity_entries)
    : capacity_(static_cast<int64_t>(capacity_entries)),
      memory_(kHolders * sizeof(uint64_t), "the directory's holder table"),
      words_(reinterpret_cast<std::atomic<uint64_t>*>(memory_.base())) {}

void HolderTable::add(HolderIndex holder) {
  uint64_t unused = 0;
  if (holder == kNoHolder || !word(holder).compare_exchange_strong(unused, kLive))
    throw std::invalid_argument("holder index " + std::to_string(holder) +
                                " is still in use: drop it and sweep its records first");
  uint32_t used = holders_used_.load();
  while (used <= holder && !holders_used_.compare_exchange_weak(used, holder + 1u)) {
  }
}

void HolderTable::drop(HolderIndex holder) {
  const uint64_t before = word(holder).fetch_and(~kLive);
  if (!(before & kLive)) return;
  const auto died = static_cast<int64_t>(before & kCountMask);
  dead_records_ += died;
  live_records_ -= died;
}

uint64_t HolderTable::reserve(uint64_t wanted) {
  int64_t live = live_records_.load();
  for (;;) {
    const int64_t room = std::min(capacity_ - live, static_cast<int64_t>(wanted));
    if (room <= 0) return 0;
    if (live_records_.compare_exchange_weak(live, live + room)) return static_cast<uint64_t>(room);
  }
}

void HolderTable::settle(HolderIndex holder, int64_t added, int64_t removed, uint64_t reserved) {
  // The old word tells whether this count falls before or after a drop. Records counted before the
  // drop died with it; those counted later are dead from the start. A rebuild may already have
  // removed dead records that are only counted now, so a count can briefly be negative.
  const int64_t delta = added - removed;
  const uint64_t before = word(holder).fetch_add(static_cast<uint64_t>(delta));
  const bool was_live = before & kLive;
  live_records_ += (was_live ? delta : 0) - static_cast<int64_t>(reserved);
  if (!was_live) dead_records_ += delta;
}

uint64_t HolderTable::resident_bytes() const {
  const uint64_t bytes = holders_used_.load() * sizeof(uint64_t);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace peercached
