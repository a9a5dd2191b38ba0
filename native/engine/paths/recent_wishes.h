// A small memory of recent wishes. `exists` comes again and again while a request waits, but its
// wish that a peer warms a page need not travel each time. A forgotten wish travels once more.
// Thread safe.
#pragma once

#include <array>
#include <mutex>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

class RecentWishes {
 public:
  // False if the same digest was new within kRecent. Else remembers it and returns true.
  bool is_new(const Digest& digest, TimePoint now) {
    std::lock_guard lock(mutex_);
    Wish& wish = wishes_[digest.lo % kWishes];
    if (wish.digest == digest && now - wish.at < kRecent) return false;
    wish = {digest, now};
    return true;
  }

 private:
  static constexpr size_t kWishes = 8192;
  static constexpr auto kRecent = std::chrono::seconds(1);
  struct Wish {
    Digest digest;
    TimePoint at{};
  };
  std::mutex mutex_;
  std::array<Wish, kWishes> wishes_{};
};

}  // namespace peercached
