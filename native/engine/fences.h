// Fencing tokens: which of a holder's publish frames come too late to be taken.
//
// A holder raises its *fence*, a number in every frame, for each frame that it hears no answer to.
// That frame may still arrive, behind the withdrawal of its pages; owners keep no tombstones, so
// its records would stay. Every batch on the holder's record stream has the fence of that moment,
// too. An owner that reads a batch takes no frame with a lower one from then on.
//
// Thread safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "engine/nodes.h"

namespace peercached {

class Fences {
 public:
  // A holder has this index now, or nobody has.
  void admit(HolderIndex holder) {
    set(holder, [](uint64_t) { return uint64_t{0}; });
  }
  void refuse(HolderIndex holder) {
    set(holder, [](uint64_t) { return kNothing; });
  }
  void raise(HolderIndex holder, uint64_t fence) {
    set(holder, [&](uint64_t lowest) { return std::max(lowest, fence); });
  }

  // Whether `apply` was called, and said yes. It is over before the fence can be raised.
  template <typename Apply>
  bool pass(HolderIndex holder, uint64_t fence, const Apply& apply) {
    if (holder >= kNodesMax) return false;
    std::lock_guard lock(mutex_of(holder));
    return fence >= lowest_[holder] && apply();
  }

 private:
  static constexpr uint64_t kNothing = UINT64_MAX;

  template <typename Change>
  void set(HolderIndex holder, const Change& change) {
    if (holder >= kNodesMax) return;
    std::lock_guard lock(mutex_of(holder));
    lowest_[holder] = change(lowest_[holder]);
  }
  std::mutex& mutex_of(HolderIndex holder) { return mutexes_[holder % mutexes_.size()]; }

  std::array<std::mutex, 64> mutexes_;
  std::array<uint64_t, kNodesMax> lowest_{};  // by holder: that is taken
};

}  // namespace peercached
