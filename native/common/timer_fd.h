// A timer as a descriptor: it becomes readable at its time, for a thread that polls it.
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>

namespace peercached {

class TimerFd {
 public:
  TimerFd() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot make a timerfd");
  }
  ~TimerFd() { ::close(fd_); }
  TimerFd(const TimerFd&) = delete;
  TimerFd& operator=(const TimerFd&) = delete;

  int get() const { return fd_; }
  // Replaces an earlier time, and makes the descriptor unreadable until then. Under 1 s.
  void ring_in(std::chrono::nanoseconds pause) {
    const itimerspec time{{}, {0, pause.count() > 0 ? static_cast<long>(pause.count()) : 1}};
    (void)::timerfd_settime(fd_, 0, &time, nullptr);
  }

 private:
  const int fd_;
};

}  // namespace peercached
