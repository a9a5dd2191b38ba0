// The disk tier's system calls behind one small interface, so that tests and fault plans can
// intercept them (faulty_io.h, tests/native/disk/).
//
// All calls return -errno on failure, else a value >= 0. Thread safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peercached::disk {

// Identity of a file, independent of its name.
struct FileNode {
  uint64_t device = 0, inode = 0;
  uint64_t names = 0;  // 0: deleted; it exists only while open

  bool is(const FileNode& other) const { return device == other.device && inode == other.inode; }
};

class Io {
 public:
  virtual ~Io() = default;

  // `flags` as for open(2); O_CLOEXEC is added.
  virtual int open(const std::string& path, int flags, mode_t mode) = 0;
  virtual void close(int fd) = 0;
  // May transfer less than asked; see read_all and write_all.
  virtual ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) = 0;
  virtual ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) = 0;
  virtual int fdatasync(int fd) = 0;
  virtual int sync_directory(const std::string& path) = 0;
  // Sets the file's length and reserves its blocks where the file system can.
  virtual int allocate(int fd, uint64_t bytes) = 0;
  virtual int truncate(int fd, uint64_t bytes) = 0;
  virtual int64_t size(int fd) = 0;
  virtual int rename(const std::string& from, const std::string& to) = 0;
  virtual int unlink(const std::string& path) = 0;
  virtual int make_directory(const std::string& path) = 0;
  virtual int list(const std::string& path, std::vector<std::string>& names) = 0;
  // Looks at the file at the path, or at the open file.
  virtual int look_at(const std::string& path, FileNode& found) = 0;
  virtual int look_at(int fd, FileNode& found) = 0;
  // Takes an exclusive flock without waiting; -EWOULDBLOCK if another holder has it.
  virtual int lock(int fd) = 0;

  // Whether reads may bypass pread (io_uring).
  virtual bool is_plain() const { return false; }
};

// Real system calls; never destroyed.
Io& posix_io();

// Loop until all bytes are transferred. 0 or -errno; -EIO if the file ends too early.
int read_all(Io& io, int fd, std::byte* to, size_t bytes, uint64_t offset);
int write_all(Io& io, int fd, const std::byte* from, size_t bytes, uint64_t offset);

// Owns a file descriptor of an Io and closes it.
class File {
 public:
  File() = default;
  File(Io& io, int fd) : io_(&io), fd_(fd) {}
  File(File&& other) noexcept : io_(other.io_), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(io_, other.io_);
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() {
    if (fd_ >= 0) io_->close(fd_);
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  Io* io_ = nullptr;
  int fd_ = -1;
};

}  // namespace peercached::disk
