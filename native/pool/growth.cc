// How the pool gets its memory: the first part at start, the others while it serves.

#include <algorithm>
#include <chrono>
#include <utility>

#include "pool/pool_impl.h"

namespace peercached {

namespace {
// Beyond that, a set evicts pages as in a pool of that size.
constexpr std::chrono::milliseconds kWaitMax{500};
}  // namespace

void Pool::Impl::wait_for_growth(std::span<const PageRequest> requests) {
  uint64_t bytes = 0;
  for (const PageRequest& request : requests) bytes += space.stride_of(request.length);
  const TimePoint until = Clock::now() + kWaitMax;
  while (growing && space.occupied_bytes() + bytes > std::min(high_bytes(), space.ready_bytes()) &&
         growth.wait_until(mutex, until)) {
  }
}

uint64_t Pool::ready_bytes() const {
  MutexLock lock(impl_->mutex);
  return impl_->space.ready_bytes();
}

std::optional<uint64_t> Pool::touch_more() {
  PoolMemory& memory = impl_->memory;
  if (memory.ready_bytes() == memory.size_bytes()) return std::nullopt;
  memory.touch_more();
  return memory.ready_bytes();
}

void Pool::grow_to(uint64_t bytes) {
  MutexLock lock(impl_->mutex);
  impl_->space.grow_to(bytes);
  impl_->growing = bytes < impl_->memory.size_bytes();
  impl_->growth.notify_all();
}

void Pool::stop_growing(std::string why) {
  MutexLock lock(impl_->mutex);
  impl_->counters.why_small = std::move(why);
  impl_->growing = false;
  impl_->growth.notify_all();
}

}  // namespace peercached
