#include "ipc/frame_buffer.h"

#include <sys/mman.h>

namespace peercached::ipc {

FrameBuffer::~FrameBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

bool FrameBuffer::grow(size_t bytes) {
  if (bytes <= size_) return true;
  if (bytes > kSmallBytes && !share_.grow(bytes)) return false;
  void* larger = data_ == nullptr ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                  : ::mremap(data_, size_, bytes, MREMAP_MAYMOVE);
  if (larger == MAP_FAILED) {
    share_.shrink(size_ > kSmallBytes ? size_ : 0);
    return false;
  }
  data_ = static_cast<std::byte*>(larger);
  size_ = bytes;
  return true;
}

void FrameBuffer::shrink() {
  if (size_ <= kSmallBytes) return;
  ::munmap(data_ + kSmallBytes, size_ - kSmallBytes);
  size_ = kSmallBytes;
  share_.shrink(0);
}

}  // namespace peercached::ipc
