// A disk with a volatile cache: a power cut may lose any part of the unsynced changes.
//
// Calls go through to the real files. Their changes are remembered until a sync makes them durable.
// After the tier has closed, lose_unsynced() takes back a random part of the rest: single blocks of
// writes, file sizes, names of new files, and deletions.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "disk/aligned_buffer.h"
#include "disk/forwarding_io.h"
#include "real_path.h"

namespace peercached::disk {

class PowerCutIo final : public ForwardingIo {
 public:
  // Deleted files are kept in `attic`, a directory on the same file system.
  PowerCutIo(std::string attic, uint64_t calls_until_cut)
      : ForwardingIo(posix_io()),
        attic_(std::move(attic)),
        left_(static_cast<int64_t>(calls_until_cut)) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    if (tick()) return -EIO;
    const bool is_new = ::access(path.c_str(), F_OK) != 0;
    const int fd = ForwardingIo::open(path, flags, mode);
    std::lock_guard lock(mutex_);
    if (fd < 0) return fd;
    paths_[fd] = real_path(path);
    if (is_new) names_.push_back({real_path(path), ""});
    return fd;
  }
  void close(int fd) override {
    {
      std::lock_guard lock(mutex_);
      paths_.erase(fd);
    }
    ForwardingIo::close(fd);
  }
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    if (tick()) return -EIO;
    Change change{offset, std::vector<std::byte>(bytes), 0, false};
    if (bytes % kBlockBytes == 0) {  // otherwise it is one of the small files
      AlignedBuffer before(bytes);
      const ssize_t was = ForwardingIo::pread(fd, before.data(), bytes, offset);
      std::copy_n(before.data(), std::max<ssize_t>(was, 0), change.before.begin());
    }
    const ssize_t written = ForwardingIo::pwrite(fd, from, bytes, offset);
    if (bytes % kBlockBytes == 0) remember(fd, std::move(change));
    return written;
  }
  int truncate(int fd, uint64_t bytes) override {
    if (tick()) return -EIO;
    const int64_t was = size(fd);
    const int result = ForwardingIo::truncate(fd, bytes);
    remember(fd, {0, {}, static_cast<uint64_t>(was), true});
    return result;
  }
  int fdatasync(int fd) override {
    if (tick()) return -EIO;
    std::vector<Change> lasting;
    {
      std::lock_guard lock(mutex_);
      lasting.swap(changes_[paths_[fd]]);
    }
    const int result = ForwardingIo::fdatasync(fd);
    if (!dead_ && result == 0) return 0;
    std::lock_guard lock(mutex_);  // the power cut came before the sync
    std::vector<Change>& changes = changes_[paths_[fd]];
    changes.insert(changes.begin(), lasting.begin(), lasting.end());
    return -EIO;
  }
  int sync_directory(const std::string&) override {
    if (tick()) return -EIO;
    std::lock_guard lock(mutex_);
    names_.clear();
    return 0;
  }
  int unlink(const std::string& path) override {
    if (tick()) return -EIO;
    std::lock_guard lock(mutex_);
    const std::string kept = attic_ + "/" + std::to_string(++deleted_);
    const int result = ForwardingIo::rename(path, kept);
    names_.push_back({real_path(path), kept});
    return result;
  }
  int allocate(int fd, uint64_t bytes) override {
    return tick() ? -EIO : ForwardingIo::allocate(fd, bytes);
  }
  int rename(const std::string& from, const std::string& to) override {
    return tick() ? -EIO : ForwardingIo::rename(from, to);
  }

  bool dead() const { return dead_; }

  void lose_unsynced(std::mt19937_64& random) {
    for (auto& [path, changes] : changes_) {
      const int fd = ::open(path.c_str(), O_RDWR);
      if (fd < 0) continue;
      for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
        if (change->is_size) {
          if (random() % 2) (void)!::ftruncate(fd, static_cast<off_t>(change->size));
          continue;
        }
        for (uint64_t at = 0; at < change->before.size(); at += kBlockBytes) {
          if (random() % 2) continue;
          (void)!::pwrite(fd, change->before.data() + at, kBlockBytes,
                          static_cast<off_t>(change->offset + at));
        }
      }
      ::close(fd);
    }
    for (const Name& name : names_) {
      if (random() % 2) continue;
      if (name.kept.empty()) {
        ::unlink(name.path.c_str());
      } else {
        ::rename(name.kept.c_str(), name.path.c_str());
      }
    }
  }

 private:
  struct Change {
    uint64_t offset;
    std::vector<std::byte> before;
    uint64_t size;
    bool is_size;
  };
  struct Name {
    std::string path, kept;  // kept: path of the deleted file; empty: a new file
  };
  // Returns whether the power is off.
  bool tick() {
    if (left_.fetch_sub(1) <= 1) dead_ = true;
    return dead_;
  }
  void remember(int fd, Change change) {
    std::lock_guard lock(mutex_);
    changes_[paths_[fd]].push_back(std::move(change));
  }

  const std::string attic_;
  std::atomic<int64_t> left_;
  std::atomic<bool> dead_{false};
  std::mutex mutex_;
  std::map<int, std::string> paths_;
  std::map<std::string, std::vector<Change>> changes_;
  std::vector<Name> names_;
  unsigned deleted_ = 0;
};

}  // namespace peercached::disk
