// The location cache: where pages of other nodes were last seen.
//
// The answers of owners fill it, so that a `get` right after an `exists` asks nobody. Records that
// we store ourselves are as quick to find, so they are not in it. It may be stale: every READ is
// verified (transfer/verify.h), and a stale entry costs a `get` one more lookup. An `exists`
// promises more, so it uses only entries learnt a moment ago. Bounded: in a set of 8 entries the
// oldest is replaced.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/counter.h"
#include "common/types.h"
#include "removals/running.h"

namespace peercached {

class LocationCache {
 public:
  // `entries` is rounded up to a power of two; 0: off. `running` must outlive this.
  LocationCache(size_t entries, const Running& running);

  // Stores what was learnt when Running::changes() was `removals`. Does nothing if it has changed
  // since: the removal that began or ended meanwhile may be of this page.
  void put(const RecordRow& row, TimePoint now, uint64_t removals);
  // Finds only entries learnt at `since` or later.
  bool find(const Digest& digest, TimePoint since, RecordRow& row) const;
  void forget(const Digest& digest);
  void forget_holder(HolderIndex holder);

  size_t entries_max() const { return sets_count_ * kWays; }
  uint64_t hits() const { return hits_.load(); }
  uint64_t misses() const { return misses_.load(); }

 private:
  static constexpr size_t kWays = 8;
  static constexpr size_t kLocks = 256;
  struct Set {
    RecordRow rows[kWays];  // holder == kNoHolder: empty
    TimePoint learnt[kWays];
    uint8_t next = 0;  // the way to replace next
  };
  Set& set_of(const Digest& digest) const { return sets_[digest.hi & (sets_count_ - 1)]; }
  std::mutex& lock_of(const Digest& digest) const {
    return locks_[digest.hi & (sets_count_ - 1) & (kLocks - 1)];
  }

  const Running& running_;
  size_t sets_count_;
  std::unique_ptr<Set[]> sets_;
  mutable std::unique_ptr<std::mutex[]> locks_;
  mutable Counter hits_, misses_;
};

}  // namespace peercached
