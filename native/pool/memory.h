// The pool's memory: a memfd, or a file that outlives the process. It is mapped once. Its first
// part is touched at start, and the rest afterwards, so a large pool serves at once.
//
// The first touch of a page is slower than copying it (0.4 GB/s against 20 GB/s). Running out of
// memory at first touch raises SIGBUS. Touching memory before it is used keeps both out of `set`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pool/pool_file.h"

namespace peercached {

class PoolMemory {
 public:
  // Anonymous memory. Throws std::runtime_error if memory or huge pages do not suffice.
  // `first_bytes`: touched at start.
  PoolMemory(uint64_t size_bytes, bool huge_pages, uint64_t first_bytes);
  // Keeps the content of the file. If there is any, all is touched at start.
  PoolMemory(std::unique_ptr<PoolFile> file, uint64_t first_bytes);
  ~PoolMemory();
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  std::byte* base() const { return base_; }
  // Size of the pool: rounded down to whole (huge) pages, minus the file's own metadata.
  uint64_t size_bytes() const { return size_bytes_; }
  // From the base on, what may be used.
  uint64_t ready_bytes() const { return ready_bytes_; }
  // Touches the next part. Throws std::runtime_error if the memory cannot be had. For one thread.
  void touch_more();
  const PoolFile* file() const { return file_.get(); }  // null: anonymous
  unsigned threads() const { return threads_; }         // one per processor, at most 16

 private:
  void map(bool huge_pages);
  void touch_first(uint64_t bytes);  // and all parts before
  void touch(uint64_t from, uint64_t to);
  void release();

  const unsigned threads_;
  std::unique_ptr<PoolFile> file_;
  uint64_t mapped_bytes_;
  uint64_t size_bytes_;
  uint64_t step_bytes_ = 0;
  uint64_t ready_bytes_ = 0;
  int fd_ = -1;
  std::byte* base_ = nullptr;
};

}  // namespace peercached
