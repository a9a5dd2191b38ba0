// The pool's memory: a memfd or a file that outlives us, mapped once and touched throughout before
// first use.
//
// First touch of a page costs more than copying it (0.4 GB/s against 20), and running out of
// memory at first touch is a SIGBUS in the middle of a `set`. Both belong to the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pool/pool_file.h"

namespace peercached {

class PoolMemory {
 public:
  // Anonymous. Throws std::runtime_error: more than the memory there is, too few huge pages.
  // prefault_threads: 0 is one per processor, at most 16.
  PoolMemory(uint64_t size_bytes, bool huge_pages, unsigned prefault_threads);
  // The content of the file stays.
  PoolMemory(std::unique_ptr<PoolFile> file, unsigned prefault_threads);
  ~PoolMemory();
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  std::byte* base() const { return base_; }
  // Of the pool: rounded down to whole pages of the kind asked for, less what the file needs.
  uint64_t size_bytes() const { return size_bytes_; }
  int fd() const { return fd_; }                        // the pool begins at its offset 0
  const PoolFile* file() const { return file_.get(); }  // null: anonymous
  unsigned threads() const { return threads_; }         // that are worth using on all of it

 private:
  void map_and_touch(bool huge_pages);
  void touch(bool huge_pages);
  void release();

  const unsigned threads_;
  std::unique_ptr<PoolFile> file_;
  uint64_t mapped_bytes_;
  uint64_t size_bytes_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
};

}  // namespace peercached
