// Limits the memory for workers' large frames, in total and per user. A frame takes memory as its
// bytes arrive (frame_buffer.h), so an announced but unsent body costs nothing. Small frames do not
// count, because every connection has their buffer anyway.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <map>

#include "common/mutex.h"

namespace peercached::ipc {

class FrameMemory {
 public:
  // Bytes; 0: unlimited.
  FrameMemory(uint64_t all_max, uint64_t user_max) : all_max_(all_max), user_max_(user_max) {}
  FrameMemory(const FrameMemory&) = delete;
  FrameMemory& operator=(const FrameMemory&) = delete;

  // One connection's share; its destructor returns it.
  class Share {
   public:
    Share(FrameMemory& memory, uint32_t uid) : memory_(memory), uid_(uid) {}
    ~Share() { shrink(0); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // `bytes` must be more than before. False, and no change, if a limit would be exceeded.
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
  mutable Mutex mutex_;
  uint64_t all_ GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, uint64_t> by_user_ GUARDED_BY(mutex_);
};

}  // namespace peercached::ipc
