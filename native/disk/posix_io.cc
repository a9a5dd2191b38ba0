#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "disk/io.h"

namespace peercached::disk {
namespace {

template <typename Result>
Result or_error(Result result) {
  return result < 0 ? static_cast<Result>(-errno) : result;
}

FileNode node_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_nlink};
}

class PosixIo final : public Io {
 public:
  int open(const std::string& path, int flags, mode_t mode) override {
    return or_error(::open(path.c_str(), flags | O_CLOEXEC, mode));
  }
  void close(int fd) override { ::close(fd); }
  ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    return or_error(::pread(fd, to, bytes, static_cast<off_t>(offset)));
  }
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    return or_error(::pwrite(fd, from, bytes, static_cast<off_t>(offset)));
  }
  int fdatasync(int fd) override { return or_error(::fdatasync(fd)); }
  int sync_directory(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -errno;
    const int result = or_error(::fsync(fd));
    ::close(fd);
    return result;
  }
  int allocate(int fd, uint64_t bytes) override {
    const auto length = static_cast<off_t>(bytes);
    if (::fallocate(fd, 0, 0, length) == 0) return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return -errno;
    return or_error(::ftruncate(fd, length));
  }
  int truncate(int fd, uint64_t bytes) override {
    return or_error(::ftruncate(fd, static_cast<off_t>(bytes)));
  }
  int64_t size(int fd) override {
    struct stat status;
    if (::fstat(fd, &status) != 0) return -errno;
    return status.st_size;
  }
  int rename(const std::string& from, const std::string& to) override {
    return or_error(::rename(from.c_str(), to.c_str()));
  }
  int unlink(const std::string& path) override { return or_error(::unlink(path.c_str())); }
  int make_directory(const std::string& path) override {
    return or_error(::mkdir(path.c_str(), 0700));
  }
  int list(const std::string& path, std::vector<std::string>& names) override {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return -errno;
    errno = 0;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread reads this stream.
    while (const dirent* entry = ::readdir(folder)) names.emplace_back(entry->d_name);
    const int error = errno;
    ::closedir(folder);
    return -error;
  }
  int look_at(const std::string& path, FileNode& found) override {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) return -errno;
    found = node_of(status);
    return 0;
  }
  int look_at(int fd, FileNode& found) override {
    struct stat status;
    if (::fstat(fd, &status) != 0) return -errno;
    found = node_of(status);
    return 0;
  }
  int lock(int fd) override { return or_error(::flock(fd, LOCK_EX | LOCK_NB)); }
  bool is_plain() const override { return true; }
};

// `step(at)` transfers some bytes from `at` on and returns how many.
template <typename Step>
int until_all(size_t bytes, Step&& step) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t moved = step(at);
    if (moved == -EINTR) continue;
    if (moved < 0) return static_cast<int>(moved);
    if (moved == 0) return -EIO;
    at += static_cast<size_t>(moved);
  }
  return 0;
}

}  // namespace

Io& posix_io() {
  static PosixIo io;
  return io;
}

int read_all(Io& io, int fd, std::byte* to, size_t bytes, uint64_t offset) {
  return until_all(bytes,
                   [&](size_t at) { return io.pread(fd, to + at, bytes - at, offset + at); });
}

int write_all(Io& io, int fd, const std::byte* from, size_t bytes, uint64_t offset) {
  return until_all(bytes,
                   [&](size_t at) { return io.pwrite(fd, from + at, bytes - at, offset + at); });
}

}  // namespace peercached::disk
