// Digests of pages that the pool evicted lately to make room for others. They tell how many more
// keys a larger pool would have found.
//
// Pages go roughly in the order of their last use. So a pool of twice our size would still hold a
// page if, since its eviction, fewer bytes were evicted than our pool has; a pool of four times our
// size, up to three times as many bytes. This assumes that the other pages of the cluster stay the
// same.
//
// The table has room for three pools full of pages of 64 KiB or more, in 8 bytes each, within fixed
// bounds. Smaller pages overwrite each other earlier, and the estimates are then too low. Thread
// safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/mutex.h"
#include "common/types.h"

namespace peercached {

class EvictedKeys {
 public:
  explicit EvictedKeys(uint64_t pool_bytes);

  // `bytes`: of its slot.
  void add(const Digest& digest, uint64_t bytes);
  // How many times as large a pool would still have the page: 2 or 4. 0: larger, or never evicted.
  unsigned pools_needed(const Digest& digest) const;

 private:
  struct Entry {
    uint32_t mark = 0;  // from the digest; 0: free
    uint32_t at = 0;    // evicted bytes at its eviction, in units; wraps
  };
  using Bucket = std::array<Entry, 4>;

  size_t bucket_of(const Digest& digest) const REQUIRES(mutex_) {
    return digest.lo & (buckets_.size() - 1);
  }
  uint32_t now() const REQUIRES(mutex_) { return static_cast<uint32_t>(evicted_bytes_ / unit_); }

  const uint64_t unit_;  // the pool has kUnits of them
  mutable Mutex mutex_;
  uint64_t evicted_bytes_ GUARDED_BY(mutex_) = 0;
  std::vector<Bucket> buckets_ GUARDED_BY(mutex_);
};

}  // namespace peercached
