#include "transfer/wake_fds.h"

#include "common/event_fd.h"

namespace peercached {

WakeFds::~WakeFds() {
  for (int fd : all_) ::close(fd);
}

int WakeFds::take() {
  MutexLock lock(mutex_);
  if (!free_.empty()) {
    const int fd = free_.back();
    free_.pop_back();
    return fd;
  }
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0) all_.push_back(fd);
  return fd;
}

void WakeFds::give_back(int fd) {
  if (fd < 0) return;
  hush(fd);  // from wake-ups that the last read did not consume
  MutexLock lock(mutex_);
  free_.push_back(fd);
}

}  // namespace peercached
