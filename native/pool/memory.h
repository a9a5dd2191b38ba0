// The pool's memory: a memfd, mapped once and touched throughout before first use.
//
// First touch of a page costs more than copying it (0.4 GB/s against 20), and running out of
// memory at first touch is a SIGBUS in the middle of a `set`. Both belong to the start.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peercached {

class PoolMemory {
 public:
  // Throws std::runtime_error: more than the memory there is, too few huge pages.
  // prefault_threads: 0 is one per processor, at most 16.
  PoolMemory(uint64_t size_bytes, bool huge_pages, unsigned prefault_threads);
  ~PoolMemory();
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  std::byte* base() const { return base_; }
  uint64_t size_bytes() const { return size_bytes_; }
  int fd() const { return fd_; }

 private:
  void prefault(unsigned threads, bool huge_pages);
  void release();

  uint64_t size_bytes_;  // rounded down to whole pages of the kind asked for
  int fd_ = -1;
  std::byte* base_ = nullptr;
};

}  // namespace peercached
