// Eventfds: writing to one wakes the thread that polls it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace peercached {

inline void ring(int event_fd) {
  const uint64_t one = 1;
  (void)!::write(event_fd, &one, sizeof one);
}

// Forgets all rings so far.
inline void hush(int event_fd) {
  uint64_t rung;
  (void)!::read(event_fd, &rung, sizeof rung);
}

class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot make an eventfd");
  }
  ~EventFd() { ::close(fd_); }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace peercached
