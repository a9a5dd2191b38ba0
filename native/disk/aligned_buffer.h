// Memory for direct I/O: aligned to kBlockBytes, in whole blocks. From 2 MiB on it asks for huge
// pages. A disk request lists each physically separate piece: on a virtual disk, 16 KiB reads in
// four pieces took 15 % longer.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "disk/format.h"

namespace peercached::disk {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes) { reserve(bytes); }

  std::byte* data() const { return memory_.get(); }
  size_t size() const { return bytes_; }

  // Ensures at least this size; growing loses the content.
  void reserve(size_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();
    bytes_ = block_ceil(bytes);
    const bool large = bytes_ >= kHugePageBytes;
    void* memory = nullptr;
    if (::posix_memalign(&memory, large ? kHugePageBytes : kBlockBytes, bytes_) != 0) {
      bytes_ = 0;
      throw std::bad_alloc();
    }
    memory_.reset(static_cast<std::byte*>(memory));
    if (large) ::madvise(memory_.get(), bytes_, MADV_HUGEPAGE);  // may fail: small pages then
  }
  // Returns memory above that size to the system.
  void shrink(size_t bytes) {
    if (bytes_ <= bytes) return;
    memory_.reset();
    bytes_ = 0;
    reserve(bytes);
  }

 private:
  static constexpr size_t kHugePageBytes = 2 << 20;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace peercached::disk
