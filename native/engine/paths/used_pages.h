// Pages that were READ without their holders noticing. A holder would take such a page for unused
// and evict it next. So holders are told of them now and then, some seconds before that can matter.
// Pages that do not fit are not reported: a page in steady use is read again. Thread safe.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "engine/paths/recent_wishes.h"

namespace peercached {

class UsedPages {
 public:
  void note(HolderIndex holder, std::span<const Digest> digests, TimePoint now) {
    std::lock_guard lock(mutex_);
    size_t room = kPagesMax - count_;
    if (const auto there = by_holder_.find(holder); there != by_holder_.end())
      room = std::min(room, kPagesPerHolderMax - there->second.size());
    else
      room = std::min(room, kPagesPerHolderMax);
    for (const Digest& digest : digests) {
      if (room == 0) return;
      if (!noted_.is_new(digest, now)) continue;
      by_holder_[holder].push_back(digest);
      ++count_;
      --room;
    }
  }

  // The pages since the last call, in the order of their reads.
  std::map<HolderIndex, std::vector<Digest>> take() {
    std::lock_guard lock(mutex_);
    count_ = 0;
    return std::exchange(by_holder_, {});
  }

 private:
  static constexpr size_t kPagesPerHolderMax = 4096;  // the most that one Promote call takes
  static constexpr size_t kPagesMax = 65536;

  std::mutex mutex_;
  RecentWishes noted_;
  std::map<HolderIndex, std::vector<Digest>> by_holder_;
  size_t count_ = 0;
};

}  // namespace peercached
