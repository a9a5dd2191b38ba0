#include "engine/records/locations.h"

#include <bit>

namespace peercached {

LocationCache::LocationCache(size_t entries, const Running& running)
    : running_(running),
      sets_count_(entries == 0 ? 0 : std::bit_ceil((entries + kWays - 1) / kWays)),
      sets_(sets_count_ == 0 ? nullptr : new Set[sets_count_]),
      locks_(new std::mutex[kLocks]) {}

void LocationCache::put(const RecordRow& row, TimePoint now, uint64_t removals) {
  if (sets_count_ == 0 || row.holder == kNoHolder) return;
  std::lock_guard lock(lock_of(row.digest));
  // Under the lock: a removal that changes the counter later forgets this entry again.
  if (running_.changes() != removals) return;
  Set& set = set_of(row.digest);
  size_t way = kWays;
  for (size_t i = 0; i < kWays; ++i) {
    const RecordRow& entry = set.rows[i];
    if (entry.holder == kNoHolder) {
      if (way == kWays) way = i;
    } else if (entry.digest == row.digest) {
      way = i;
      break;
    }
  }
  if (way == kWays) {
    way = set.next;
    set.next = static_cast<uint8_t>((set.next + 1) % kWays);
  }
  set.rows[way] = row;
  set.learnt[way] = now;
}

bool LocationCache::find(const Digest& digest, TimePoint since, RecordRow& row) const {
  if (sets_count_ == 0) return false;
  std::lock_guard lock(lock_of(digest));
  const Set& set = set_of(digest);
  for (size_t i = 0; i < kWays; ++i) {
    if (set.rows[i].holder != kNoHolder && set.rows[i].digest == digest && set.learnt[i] >= since) {
      row = set.rows[i];
      hits_.add();
      return true;
    }
  }
  misses_.add();
  return false;
}

void LocationCache::forget(const Digest& digest) {
  if (sets_count_ == 0) return;
  std::lock_guard lock(lock_of(digest));
  for (RecordRow& entry : set_of(digest).rows) {
    if (entry.holder != kNoHolder && entry.digest == digest) entry.holder = kNoHolder;
  }
}

void LocationCache::forget_holder(HolderIndex holder) {
  for (size_t lock_index = 0; lock_index < kLocks; ++lock_index) {
    std::lock_guard lock(locks_[lock_index]);
    for (size_t i = lock_index; i < sets_count_; i += kLocks) {
      for (RecordRow& entry : sets_[i].rows) {
        if (entry.holder == holder) entry.holder = kNoHolder;
      }
    }
  }
}

}  // namespace peercached
