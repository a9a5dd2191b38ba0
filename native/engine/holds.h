// Pages kept in the pool for a while because a caller was promised them.
//
// Bounded in pages and bytes, so that promises never starve eviction. Beyond the bound nothing more
// is held, and the caller is told that the page is not there.
#pragma once

#include <mutex>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "pool/pool.h"

namespace peercached {

struct HoldStats {
  uint64_t pages = 0, bytes = 0, refused = 0;
};

class HoldTable {
 public:
  HoldTable(Pool& pool, size_t pages_max, uint64_t bytes_max);
  ~HoldTable();

  // held[i] = 1: digests[i] is committed here and stays until `until`, unless it is removed. A page
  // that is held already keeps the later of both times.
  void hold(std::span<const Digest> digests, TimePoint until, std::span<uint8_t> held);
  // Releases pages whose time is over. Returns when the next is due, or TimePoint::max().
  TimePoint expire(TimePoint now);
  HoldStats stats() const;

 private:
  struct Held {
    PinnedPage page;
    TimePoint until;
  };
  using Due = std::pair<TimePoint, Digest>;

  Pool& pool_;
  const size_t pages_max_;
  const uint64_t bytes_max_;
  mutable std::mutex mutex_;
  std::unordered_map<Digest, Held, DigestHash> held_;
  // One entry per held page. After an extension it is queued again when its first time comes.
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  uint64_t bytes_ = 0, refused_ = 0;
};

}  // namespace peercached
