// The pages that the tier is about to evict: those of its oldest segments, but none that would be
// carried forward. Somebody else may want them before, or all of them (docs/cold-tier.md).
//
// The index is scanned once for each segment that becomes one of the oldest. It takes no new pages
// any more, so its list only gets shorter.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/mutex.h"
#include "disk/index.h"
#include "disk/log.h"
#include "disk/segment.h"

namespace peercached::disk {

// `carry`: see DiskConfig.
uint64_t carry_bytes_max(const LogConfig& config, double carry);
// Sorts a segment's pages by their last use. Returns how many of the first ones are carried.
size_t carried_first(std::vector<IndexedPage>& used, uint64_t carry_bytes_max);

class Leaving {
 public:
  Leaving(const Log& log, const SegmentSet& segments, Index& index, uint64_t carry_bytes_max)
      : log_(log), segments_(segments), index_(index), carry_bytes_max_(carry_bytes_max) {}

  // See DiskTier::leaving().
  std::vector<DiskPage> pages(uint8_t uses_min);
  // See DiskTier::used().
  std::vector<DiskPage> all(uint8_t uses_min);

 private:
  struct Listed {
    uint64_t sequence;
    Digest digest;
  };
  std::vector<uint32_t> oldest() const;  // numbers of the segments that go next
  void list(const std::vector<uint32_t>& segments) REQUIRES(mutex_);

  const Log& log_;
  const SegmentSet& segments_;
  Index& index_;
  const uint64_t carry_bytes_max_;
  Mutex mutex_;
  std::map<uint32_t, std::vector<Listed>> listed_ GUARDED_BY(mutex_);  // by segment
};

}  // namespace peercached::disk
