// The bytes of one connection's frame: 64 KiB that are always there, and more of its share of the
// frame memory (frame_memory.h) for as long as it is asked for. What is more comes from the kernel
// and goes back there, so that a daemon is as small after a burst as before.
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

  // With what is in it. False: there is no room for so much.
  bool grow(size_t bytes);
  // To kSmallBytes, without what is in it.
  void shrink();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  FrameMemory::Share share_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace peercached::ipc
