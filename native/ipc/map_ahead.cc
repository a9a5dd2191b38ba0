#include "ipc/map_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "common/round_up.h"
#include "common/thread_name.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; older headers lack the name
#endif

namespace peercached::ipc {
namespace {

// Takes some milliseconds. An unmapping of other memory waits for it.
constexpr uint64_t kStepBytes = 16 << 20;

// Maps pages that the file has, and makes no new ones: the worker may never need them. Reading is
// enough, because shared memory is mapped for writing at once. Clears `whole` if there are others.
// False: the kernel cannot, or the file has shrunk.
bool map_pages(std::byte* base, uint64_t bytes, bool& whole) {
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> there(round_up(bytes, page_bytes) / page_bytes);
  if (::mincore(base, bytes, there.data()) != 0) return false;
  for (auto at = there.begin(); at != there.end();) {
    const bool touched = (*at & 1) != 0;
    const auto end =
        std::find_if(at, there.end(), [&](unsigned char page) { return (page & 1) != touched; });
    whole = whole && touched;
    if (touched && ::madvise(base + static_cast<uint64_t>(at - there.begin()) * page_bytes,
                             static_cast<uint64_t>(end - at) * page_bytes, MADV_POPULATE_READ) != 0)
      return false;
    at = end;
  }
  return true;
}

}  // namespace

MapAhead::MapAhead()
    : thread_(named_thread("map regions", [this] {
        run_as_batch();
        run();
      })) {}

MapAhead::~MapAhead() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void MapAhead::add(const std::shared_ptr<Region>& region) {
  if (!region->memory || !region->memory->tells_pages()) return;
  MutexLock lock(mutex_);
  waiting_.push_back({region});
  changed_.notify_all();
}

void MapAhead::run() {
  while (true) {
    Rest rest;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) changed_.wait(mutex_);
      if (stopping_) return;
      rest = waiting_.front();
      waiting_.pop_front();
    }
    const std::shared_ptr<Region> region = rest.region.lock();
    if (!region) continue;
    const SharedMemory& memory = *region->memory;
    const uint64_t bytes = std::min(kStepBytes, memory.bytes() - rest.from);
    if (!map_pages(memory.base() + rest.from, bytes, rest.whole)) continue;
    rest.from += bytes;
    if (rest.from == memory.bytes()) {
      if (rest.whole) region->mapped_ahead = true;  // its first use finds all pages mapped
      continue;
    }
    MutexLock lock(mutex_);
    waiting_.push_back(rest);
  }
}

}  // namespace peercached::ipc
