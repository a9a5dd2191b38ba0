#include "engine/holds.h"

#include <algorithm>

namespace peercached {

HoldTable::HoldTable(Pool& pool, size_t pages_max, uint64_t bytes_max)
    : pool_(pool), pages_max_(pages_max), bytes_max_(bytes_max) {}

HoldTable::~HoldTable() { expire(TimePoint::max()); }

void HoldTable::hold(std::span<const Digest> digests, TimePoint until, std::span<uint8_t> held) {
  std::vector<PinnedPage> pins(digests.size());
  pool_.pin(digests, nullptr, true, pins);
  std::vector<PinnedPage> unneeded;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < digests.size(); ++i) {
      const PinnedPage& pin = pins[i];
      held[i] = 0;
      if (!pin) continue;
      const auto known = held_.find(digests[i]);
      if (known != held_.end()) {
        // Pinned twice, or removed and set anew since: keep the new pin.
        bytes_ += pin.length;
        bytes_ -= known->second.page.length;
        unneeded.push_back(known->second.page);
        known->second.page = pin;
        known->second.until = std::max(known->second.until, until);
      } else if (held_.size() >= pages_max_ || bytes_ + pin.length > bytes_max_) {
        ++refused_;
        unneeded.push_back(pin);
        continue;
      } else {
        bytes_ += pin.length;
        held_.emplace(digests[i], Held{pin, until});
        due_.emplace(until, digests[i]);
      }
      held[i] = 1;
    }
  }
  pool_.unpin(unneeded);
}

TimePoint HoldTable::expire(TimePoint now) {
  std::vector<PinnedPage> released;
  TimePoint next = TimePoint::max();
  {
    std::lock_guard lock(mutex_);
    while (!due_.empty()) {
      const auto [at, digest] = due_.top();
      if (at > now) {
        next = at;
        break;
      }
      due_.pop();
      const auto found = held_.find(digest);
      if (found->second.until > now) {
        due_.emplace(found->second.until, digest);
        continue;
      }
      bytes_ -= found->second.page.length;
      released.push_back(found->second.page);
      held_.erase(found);
    }
  }
  pool_.unpin(released);
  return next;
}

HoldStats HoldTable::stats() const {
  std::lock_guard lock(mutex_);
  return {held_.size(), bytes_, refused_};
}

}  // namespace peercached
