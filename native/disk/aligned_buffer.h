// Memory that direct I/O can use: aligned to kBlockBytes, of whole blocks.
#pragma once

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
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes_)));
    if (memory_ == nullptr) {
      bytes_ = 0;
      throw std::bad_alloc();
    }
  }
  // Gives memory above that size back.
  void shrink(size_t bytes) {
    if (bytes_ <= bytes) return;
    memory_.reset();
    bytes_ = 0;
    reserve(bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_ = 0;
};

}  // namespace peercached::disk
