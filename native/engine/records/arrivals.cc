#include "engine/records/arrivals.h"

namespace peercached {

Arrivals::Wait::Wait(Arrivals& arrivals, const Digest& digest) : arrivals_(arrivals) {
  const std::lock_guard lock(arrivals_.mutex_);
  place_ = arrivals_.waits_.emplace(digest, this);
  arrivals_.waiting_.fetch_add(1, std::memory_order_acq_rel);  // see came()
}

Arrivals::Wait::~Wait() {
  const std::lock_guard lock(arrivals_.mutex_);
  arrivals_.waits_.erase(place_);
  --arrivals_.waiting_;
}

void Arrivals::Wait::until(TimePoint time) {
  std::unique_lock lock(arrivals_.mutex_);
  changed_.wait_until(lock, time, [&] { return came_ || arrivals_.closed(); });
}

void Arrivals::came(std::span<const RecordRow> rows) {
  // Both sides change the same counter, and whoever is second sees the other: the waiter what was
  // added, when it looks, or we the waiter.
  if (waiting_.fetch_add(0, std::memory_order_acq_rel) == 0) return;
  const std::lock_guard lock(mutex_);
  for (const RecordRow& row : rows) {
    if ((row.flags & kRecordWithdraw) != 0) continue;
    const auto [first, last] = waits_.equal_range(row.digest);
    for (auto wait = first; wait != last; ++wait) {
      wait->second->came_ = true;
      wait->second->changed_.notify_one();
    }
  }
}

void Arrivals::look_again() {
  if (waiting_.fetch_add(0, std::memory_order_acq_rel) == 0) return;  // see came()
  const std::lock_guard lock(mutex_);
  for (const auto& [digest, wait] : waits_) {
    wait->came_ = true;
    wait->changed_.notify_one();
  }
}

void Arrivals::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [digest, wait] : waits_) wait->changed_.notify_one();
}

}  // namespace peercached
