// From which holders records are taken in frames, and which frames come too late.
//
// A holder sends frames on a *line*, a number that it raises for each that it hears no answer to:
// that frame may still arrive, behind the withdrawal of its pages. Owners keep no withdrawals, so
// its records would stay. Every batch on the holder's record stream names the line of that moment;
// the owner then closes all before it, and takes no frame of a closed line.
//
// Thread safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

#include "engine/nodes.h"

namespace peercached {

class Lines {
 public:
  // A holder has this index now, or nobody has.
  void open(HolderIndex holder) {
    set(holder, [](uint64_t) { return uint64_t{0}; });
  }
  void close(HolderIndex holder) {
    set(holder, [](uint64_t) { return kClosed; });
  }
  void close_before(HolderIndex holder, uint64_t line) {
    set(holder, [&](uint64_t first) { return std::max(first, line); });
  }

  // Whether `apply` was called, and said yes. It is over before the line can be closed.
  template <typename Apply>
  bool use(HolderIndex holder, uint64_t line, const Apply& apply) {
    if (holder >= kNodesMax) return false;
    std::lock_guard lock(mutex_of(holder));
    return line >= first_open_[holder] && apply();
  }

 private:
  static constexpr uint64_t kClosed = UINT64_MAX;

  template <typename Change>
  void set(HolderIndex holder, const Change& change) {
    if (holder >= kNodesMax) return;
    std::lock_guard lock(mutex_of(holder));
    first_open_[holder] = change(first_open_[holder]);
  }
  std::mutex& mutex_of(HolderIndex holder) { return mutexes_[holder % mutexes_.size()]; }

  std::array<std::mutex, 64> mutexes_;
  std::array<uint64_t, kNodesMax> first_open_{};  // by holder
};

}  // namespace peercached
