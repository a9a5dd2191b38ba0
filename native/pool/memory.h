// The pool's memory: a memfd, or a file that outlives the process. It is mapped once and touched
// completely at start.
//
// The first touch of a page is slower than copying it (0.4 GB/s against 20 GB/s). Running out of
// memory at first touch raises SIGBUS. Touching at start keeps both out of `set`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pool/pool_file.h"

namespace peercached {

class PoolMemory {
 public:
  // Anonymous memory. Throws std::runtime_error if memory or huge pages do not suffice.
  PoolMemory(uint64_t size_bytes, bool huge_pages);
  // Keeps the content of the file.
  explicit PoolMemory(std::unique_ptr<PoolFile> file);
  ~PoolMemory();
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  std::byte* base() const { return base_; }
  // Size of the pool: rounded down to whole (huge) pages, minus the file's own metadata.
  uint64_t size_bytes() const { return size_bytes_; }
  const PoolFile* file() const { return file_.get(); }  // null: anonymous
  unsigned threads() const { return threads_; }         // one per processor, at most 16

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
