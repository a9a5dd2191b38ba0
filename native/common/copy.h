// Copies a page and makes its checksum (XXH3-64) in one pass. It goes block by block, so that the
// second use of every byte finds it in the cache.
//
// The best kernel for this processor is chosen at startup (AVX-512, AVX2, SSE2; NEON on aarch64).
#pragma once

#include <cstddef>
#include <cstdint>

namespace peercached {

// Uses non-temporal stores on x86-64, for pages that this core will not read again soon. `dest` and
// `source` must not overlap. Any alignment works; 64 bytes is fastest.
uint64_t copy_and_checksum(void* dest, const void* source, size_t bytes);

// The checksum alone.
uint64_t checksum(const void* data, size_t bytes);

// The same in steps, for a page that is still arriving, or a copy that may have to stop midway. The
// checksum does not depend on the steps. Bytes that have just come are still in the cache.
//
// A long jump may leave a step (fault_guard.h). Then do not use the copy any more.
class RunningCopy {
 public:
  // dest == nullptr: the checksum alone.
  RunningCopy(std::byte* dest, const std::byte* source) : dest_(dest), source_(source) {}

  // The first `have_bytes` of the page are there. Up to kBlockBytes of them are left for later.
  void advance(size_t have_bytes);
  // Takes the rest. Returns the checksum of the whole page.
  uint64_t finish(size_t page_bytes);

  static constexpr size_t kBlockBytes = 1024;

 private:
  std::byte* dest_;
  const std::byte* source_;
  size_t taken_bytes_ = 0;  // whole blocks
  uint64_t acc_[8];         // valid once taken_bytes_ > 0
};

}  // namespace peercached
