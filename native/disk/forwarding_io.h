// An Io that forwards every call; base class for Ios that change only some calls.
#pragma once

#include "disk/io.h"

namespace peercached::disk {

class ForwardingIo : public Io {
 public:
  explicit ForwardingIo(Io& inner) : inner_(inner) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    return inner_.open(path, flags, mode);
  }
  void close(int fd) override { inner_.close(fd); }
  ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    return inner_.pread(fd, to, bytes, offset);
  }
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    return inner_.pwrite(fd, from, bytes, offset);
  }
  int fdatasync(int fd) override { return inner_.fdatasync(fd); }
  int sync_directory(const std::string& path) override { return inner_.sync_directory(path); }
  int allocate(int fd, uint64_t bytes) override { return inner_.allocate(fd, bytes); }
  int truncate(int fd, uint64_t bytes) override { return inner_.truncate(fd, bytes); }
  int64_t size(int fd) override { return inner_.size(fd); }
  int rename(const std::string& from, const std::string& to) override {
    return inner_.rename(from, to);
  }
  int unlink(const std::string& path) override { return inner_.unlink(path); }
  int make_directory(const std::string& path) override { return inner_.make_directory(path); }
  int list(const std::string& path, std::vector<std::string>& names) override {
    return inner_.list(path, names);
  }
  int look_at(const std::string& path, FileNode& found) override {
    return inner_.look_at(path, found);
  }
  int look_at(int fd, FileNode& found) override { return inner_.look_at(fd, found); }
  int lock(int fd) override { return inner_.lock(fd); }

 private:
  Io& inner_;
};

}  // namespace peercached::disk
