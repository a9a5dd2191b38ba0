// Makes room for one more slot of a class in a full pool, at the least loss.
//
// The naive way evicts by age until the slot fits. With pages of another size, that evicts nearly
// everything before two neighbours happen to be free. Instead, take the class's own coldest page if
// it is about as cold as any. A page is cold if the eviction order says that it is worth little.
// Otherwise find the stretch of neighbouring spans with the least and coldest data, and empty only
// that.
//
// Not thread safe: the pool's mutex guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "pool/recency.h"
#include "pool/space.h"

namespace peercached {

class VictimFinder {
 public:
  VictimFinder(SlotTable& slots, Space& space, Recency& recency)
      : slots_(slots), space_(space), recency_(recency) {}

  // Fills `victims` with pages to evict so that the class gets a slot. False if everything is
  // pinned or reserved.
  bool find(SizeClass& size_class, std::vector<uint32_t>& victims);

 private:
  struct Stretch {
    uint64_t begin = 0, end = 0;
    double loss = 0;
    bool found = false;
  };

  Stretch coldest_stretch(uint64_t bytes);
  Stretch grown_from(uint64_t begin, uint64_t end, uint64_t bytes);
  Stretch any_stretch(uint64_t bytes);
  double loss_of(const Span& span) const;
  void pages_in(const Stretch& stretch, std::vector<uint32_t>& victims);

  SlotTable& slots_;
  Space& space_;
  Recency& recency_;
  std::vector<uint32_t> coldest_;  // scratch of coldest_stretch()
  // The last failed search of the whole pool; not repeated until something became movable.
  uint64_t hopeless_bytes_ = UINT64_MAX;
  uint64_t hopeless_at_ = 0;
};

}  // namespace peercached
