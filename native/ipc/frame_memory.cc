#include "ipc/frame_memory.h"

namespace peercached::ipc {

bool FrameMemory::Share::grow(uint64_t bytes) {
  const uint64_t more = bytes - bytes_;
  MutexLock lock(memory_.mutex_);
  const auto found = memory_.by_user_.find(uid_);
  const uint64_t of_user = (found == memory_.by_user_.end() ? 0 : found->second) + more;
  if (memory_.all_max_ != 0 && memory_.all_ + more > memory_.all_max_) return false;
  if (memory_.user_max_ != 0 && of_user > memory_.user_max_) return false;
  memory_.all_ += more;
  memory_.by_user_[uid_] = of_user;
  bytes_ = bytes;
  return true;
}

void FrameMemory::Share::shrink(uint64_t bytes) {
  if (bytes >= bytes_) return;
  const uint64_t less = bytes_ - bytes;
  MutexLock lock(memory_.mutex_);
  memory_.all_ -= less;
  const auto of_user = memory_.by_user_.find(uid_);
  if ((of_user->second -= less) == 0) memory_.by_user_.erase(of_user);
  bytes_ = bytes;
}

uint64_t FrameMemory::used() const {
  MutexLock lock(mutex_);
  return all_;
}

}  // namespace peercached::ipc
