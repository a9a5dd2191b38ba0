// The memory that workers' large frames may take, bounded in all and for each user. A frame takes
// of it as its bytes come (frame_buffer.h), so that what is announced and never sent costs nothing.
// What a small frame needs is not counted: every connection has that.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace peercached::ipc {

class FrameMemory {
 public:
  // Bytes; 0: without a bound.
  FrameMemory(uint64_t all_max, uint64_t user_max) : all_max_(all_max), user_max_(user_max) {}
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;

  // What one connection has of it. Its end gives that back.
  class Share {
   public:
    Share(FrameMemory& memory, uint32_t uid) : memory_(memory), uid_(uid) {}
    ~Share() { shrink(0); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // To `bytes`, which is more than before. False: there is no room; it stays as it was.
    bool grow(uint64_t bytes);
    void shrink(uint64_t bytes);

   private:
    FrameMemory& memory_;
    const uint32_t uid_;
    uint64_t bytes_ = 0;
  };

  uint64_t used() const;

 private:
  const uint64_t all_max_, user_max_;
  mutable std::mutex mutex_;
  uint64_t all_ = 0;
  std::map<uint32_t, uint64_t> by_user_;
};

}  // namespace peercached::ipc
