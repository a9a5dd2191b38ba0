// The frame buffer of one connection. It always keeps 64 KiB. A larger frame takes the rest from
// its share of the frame memory (frame_memory.h) while it lasts. The rest is mapped from the kernel
// and returned there, so that the daemon does not stay large after a burst.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ipc/frame_memory.h"

namespace peercached::ipc {

class FrameBuffer {
 public:
  static constexpr size_t kSmallBytes = 64 * 1024;

  FrameBuffer(FrameMemory& memory, uint32_t uid) : share_(memory, uid) {}
  ~FrameBuffer();
  FrameBuffer(const FrameBuffer&) = delete;
  FrameBuffer& operator=(const FrameBuffer&) = delete;

  // Keeps the content. False: there is no memory for that size.
  bool grow(size_t bytes);
  // Shrinks to kSmallBytes. The content is lost.
  void shrink();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  FrameMemory::Share share_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace peercached::ipc
