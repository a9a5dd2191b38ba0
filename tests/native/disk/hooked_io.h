// An Io that calls a hook before each call that changes or reads a segment file.
#pragma once

#include <fcntl.h>

#include <functional>
#include <string>

#include "disk/forwarding_io.h"

namespace peercached::disk {

enum class IoCall { create, allocate, write, sync, sync_directory, truncate, rename, unlink, read };

class HookedIo : public ForwardingIo {
 public:
  // Returns 0 to go on, or -errno to fail. May block.
  using Hook = std::function<int(IoCall)>;

  explicit HookedIo(Hook hook) : ForwardingIo(posix_io()), hook_(std::move(hook)) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    const int error = (flags & O_CREAT) && is_segment(path) ? hook_(IoCall::create) : 0;
    return error != 0 ? error : ForwardingIo::open(path, flags, mode);
  }
  ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    const int error = hook_(IoCall::read);
    return error != 0 ? error : ForwardingIo::pread(fd, to, bytes, offset);
  }
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    const int error = hook_(IoCall::write);
    return error != 0 ? error : ForwardingIo::pwrite(fd, from, bytes, offset);
  }
  int fdatasync(int fd) override {
    const int error = hook_(IoCall::sync);
    return error != 0 ? error : ForwardingIo::fdatasync(fd);
  }
  int sync_directory(const std::string& path) override {
    const int error = hook_(IoCall::sync_directory);
    return error != 0 ? error : ForwardingIo::sync_directory(path);
  }
  int allocate(int fd, uint64_t bytes) override {
    const int error = hook_(IoCall::allocate);
    return error != 0 ? error : ForwardingIo::allocate(fd, bytes);
  }
  int truncate(int fd, uint64_t bytes) override {
    const int error = hook_(IoCall::truncate);
    return error != 0 ? error : ForwardingIo::truncate(fd, bytes);
  }
  int rename(const std::string& from, const std::string& to) override {
    const int error = hook_(IoCall::rename);
    return error != 0 ? error : ForwardingIo::rename(from, to);
  }
  int unlink(const std::string& path) override {
    const int error = hook_(IoCall::unlink);
    return error != 0 ? error : ForwardingIo::unlink(path);
  }

 private:
  static bool is_segment(const std::string& path) {
    return path.find("/segment-") != std::string::npos;
  }
  const Hook hook_;
};

}  // namespace peercached::disk
