// Memory that direct I/O can use: aligned to kBlockBytes, of whole blocks. From 2 MiB on in huge
// pages where the kernel gives them: a disk is told each piece that lies apart in physical memory,
// and reads of 16 KiB in four pieces took a virtual one 15 % longer.
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

  // At least that large; the content is lost when it has to grow.
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
    if (large) ::madvise(memory_.get(), bytes_, MADV_HUGEPAGE);  // refused: small pages, then
  }
  // Gives memory above that size back.
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
