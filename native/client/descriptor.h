// A file descriptor in a program that may close any descriptor by its number, as daemonising
// programs do. If the number belongs to another file by now, it is neither used nor closed.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "ipc/shared_memory.h"

namespace peercached::client {

using ipc::FileIdentity;

class Descriptor {
 public:
  Descriptor() = default;
  // Takes `fd` over. Throws std::system_error, also for -1, by errno.
  explicit Descriptor(int fd, const char* what = "a file descriptor") : fd_(fd) {
    struct stat status;
    if (fd < 0 || ::fstat(fd, &status) != 0) {
      throw std::system_error(errno, std::generic_category(), what);
    }
    identity_ = {status.st_dev, status.st_ino};
  }
  static Descriptor duplicate(int fd) {
    return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, 3), "a duplicate of a file descriptor");
  }
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), identity_(other.identity_) {}
  Descriptor& operator=(Descriptor other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(identity_, other.identity_);
    return *this;
  }
  ~Descriptor() { close(); }

  const FileIdentity& identity() const { return identity_; }

  // -1 if it is closed, or if the number belongs to another file now.
  int get() const {
    struct stat status;
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) return -1;
    return identity_ == FileIdentity{status.st_dev, status.st_ino} ? fd_ : -1;
  }

  // Takes over another descriptor of the same file if this one is closed. Both may have the same
  // number: the program closed this one, and the kernel reused the number. Then only this one owns
  // it from now on.
  void take_over(Descriptor& other) {
    if (other.fd_ == fd_) {
      other.fd_ = -1;
    } else if (get() < 0) {
      fd_ = std::exchange(other.fd_, -1);
    }
  }

  void close() {
    const int fd = get();
    fd_ = -1;
    if (fd >= 0) ::close(fd);
  }

 private:
  int fd_ = -1;
  FileIdentity identity_;
};

}  // namespace peercached::client
