// Fencing tokens: they tell which of a holder's publish frames come too late.
//
// Each publish frame carries its holder's *fence*, a number. The holder raises it for each frame
// that gets no answer. Such a frame may still arrive, after the withdrawal of its pages. Owners
// keep no tombstones, so its records would stay. Every batch on the holder's record stream carries
// the current fence, too. An owner that reads a batch refuses frames with a lower fence from then
// on.
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
  // admit(): a new holder has this index. refuse(): nobody has it.
  void admit(HolderIndex holder) {
    set(holder, [](uint64_t) { return uint64_t{0}; });
  }
  void refuse(HolderIndex holder) {
    set(holder, [](uint64_t) { return kNothing; });
  }
  void raise(HolderIndex holder, uint64_t fence) {
    set(holder, [&](uint64_t lowest) { return std::max(lowest, fence); });
  }

  // Calls `apply` if the fence is high enough. True: it was called and returned true. The fence
  // cannot rise while it runs.
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
  std::array<uint64_t, kNodesMax> lowest_{};  // by holder: the lowest fence that is accepted
};

}  // namespace peercached
