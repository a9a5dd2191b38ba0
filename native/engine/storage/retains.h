// Pages that a hint wants to keep for a while: eviction takes others first, but it may take them.
//
// The pool knows the pages and their bytes (pool/hinted.cc). This table ends their time. A page
// that left the pool earlier has an entry until then, so the number of entries is bounded by
// itself.
#pragma once

#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "pool/pool.h"

namespace peercached {

class RetainTable {
 public:
  RetainTable(Pool& pool, size_t pages_max) : pool_(pool), pages_max_(pages_max) {}

  // Retains pages of this namespace until `until`; replaces the time of a page that is retained
  // already. `bytes_max`: of all retained pages, and of those of the namespace. Statuses: ok,
  // absent, or no_space beyond a bound. Returns why, with value and limit, or "".
  std::string retain(uint32_t namespace_slot, std::span<const Digest> digests, TimePoint until,
                     uint64_t bytes_max, uint64_t namespace_bytes_max,
                     std::span<PageStatus> statuses);
  // Ends those that are due. Returns when the next is due, or TimePoint::max().
  TimePoint expire(TimePoint now);

 private:
  struct Entry {
    KeptPage page;
    TimePoint until;
  };

  Pool& pool_;
  const size_t pages_max_;
  std::mutex mutex_;  // lock order: before the pool's
  std::unordered_map<Digest, Entry, DigestHash> entries_;
  std::set<std::pair<TimePoint, Digest>> due_;  // one for each entry
};

}  // namespace peercached
