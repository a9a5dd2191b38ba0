// One pass over a page: copy it and make its checksum (XXH3-64), block by block, so
// that the second use of every byte finds it in the cache.
//
// Picks the best kernel for this processor at first use (AVX-512, AVX2, SSE2).
#pragma once

#include <cstddef>
#include <cstdint>

namespace peercached {

// Non-temporal stores; use for pages that this core will not read again soon.
// `dest` and `source` must not overlap; any alignment works, 64 bytes is fastest.
uint64_t copy_and_checksum(void* dest, const void* source, size_t bytes);

// The checksum alone.
uint64_t checksum(const void* data, size_t bytes);

// The same in steps, for a page that is still coming, or whose copy may have to stop midway. The
// sum is that of one pass, whatever the steps; what has just come is still in the cache.
//
// A step may be left by a long jump (fault_guard.h): the copy is of no more use then.
class RunningCopy {
 public:
  // dest == nullptr: the checksum alone.
  RunningCopy(std::byte* dest, const std::byte* source) : dest_(dest), source_(source) {}

  // The first `have_bytes` of the page may be taken; up to kBlockBytes are left for later.
  void advance(size_t have_bytes);
  // Takes the rest. Returns the checksum of the whole.
  uint64_t finish(size_t page_bytes);

  static constexpr size_t kBlockBytes = 1024;

 private:
  std::byte* dest_;
  const std::byte* source_;
  size_t taken_bytes_ = 0;  // whole blocks
  uint64_t acc_[8];         // set once there are any
};

}  // namespace peercached
