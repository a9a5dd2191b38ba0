#include "transfer/tcp/wake_fds.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace peercached::tcp {

int WakeFds::take() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    const int fd = free_.back();
    free_.pop_back();
    return fd;
  }
  Socket made(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int fd = made.fd();
  if (made) all_.push_back(std::move(made));
  return fd;
}

void WakeFds::give_back(int fd) {
  if (fd < 0) return;
  uint64_t count;
  (void)!::read(fd, &count, sizeof count);  // what the last read did not look at
  std::lock_guard lock(mutex_);
  free_.push_back(fd);
}

}  // namespace peercached::tcp
