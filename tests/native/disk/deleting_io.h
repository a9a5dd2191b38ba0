// A disk that can stop in the middle of a deletion, undo it, and fail in chosen places.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "disk/forwarding_io.h"
#include "disk/segment.h"
#include "real_path.h"

namespace peercached::disk {

// Holds the deletion of the first segment at a chosen point, undoes deletions after a power cut,
// and fails where told.
class DeletingIo final : public ForwardingIo {
 public:
  enum class Hold { nothing, before_unlink, before_sync };

  DeletingIo(std::string attic, Hold hold)
      : ForwardingIo(posix_io()), attic_(std::move(attic)), hold_(hold) {}

  int unlink(const std::string& path) override {
    if (segment_of(path) == 0) return ForwardingIo::unlink(path);
    if (hold_ == Hold::before_unlink) wait();
    std::lock_guard lock(mutex_);
    if (dead_) return -EIO;
    const std::string kept = attic_ + "/" + std::to_string(deleted_.size());
    const int result = ForwardingIo::rename(path, kept);
    if (result == 0) deleted_.push_back({real_path(path), kept});
    return result;
  }
  int sync_directory(const std::string& path) override {
    const bool deletes = [&] {
      std::lock_guard lock(mutex_);
      return !deleted_.empty();
    }();
    if (deletes && hold_ == Hold::before_sync) wait();
    std::lock_guard lock(mutex_);
    if (deletes) ++syncs_after_unlink_;
    if (dead_ || (deletes && syncs_after_unlink_ <= failing_syncs)) return -EIO;
    return ForwardingIo::sync_directory(path);
  }
  int open(const std::string& path, int flags, mode_t mode) override {
    if (segment_of(path) == 1 && open_error != 0) return open_error;
    const int fd = ForwardingIo::open(path, flags, mode);
    std::lock_guard lock(mutex_);
    if (segment_of(path) == 1) {
      first_fd_ = fd;
    } else if (fd == first_fd_) {  // the file number is reused
      first_fd_ = -1;
    }
    return fd;
  }
  ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    {
      std::lock_guard lock(mutex_);
      if (fd == first_fd_ && offset + bytes > unreadable_from && offset < unreadable_to)
        return -EIO;
    }
    return ForwardingIo::pread(fd, to, bytes, offset);
  }
  // The carried page reaches the disk, but its write or the sync behind it reports failure, and its
  // segment is not sealed.
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    const ssize_t written = ForwardingIo::pwrite(fd, from, bytes, offset);
    if (failing_carry == Digest{} || !holds(from, bytes, failing_carry)) return written;
    std::lock_guard lock(mutex_);
    if (fd == first_fd_) return written;
    failed_fd_ = fd;
    return carry_fails_at_sync ? written : -EIO;
  }
  int fdatasync(int fd) override {
    {
      std::lock_guard lock(mutex_);
      if (fd == failed_fd_) return -EIO;
    }
    return ForwardingIo::fdatasync(fd);
  }
  int truncate(int fd, uint64_t bytes) override {
    {
      std::lock_guard lock(mutex_);
      if (fd == failed_fd_) return -EIO;
    }
    return ForwardingIo::truncate(fd, bytes);
  }

  bool waits() {
    std::lock_guard lock(mutex_);
    return waits_ > 0;
  }
  bool deleted() {
    std::lock_guard lock(mutex_);
    return !deleted_.empty();
  }
  unsigned syncs_after_unlink() {
    std::lock_guard lock(mutex_);
    return syncs_after_unlink_;
  }
  // The process dies or the power goes: held calls fail, and so does every later deletion.
  void die() {
    std::lock_guard lock(mutex_);
    dead_ = true;
    changed_.notify_all();
  }
  void undo_deletions() {
    for (const auto& [path, kept] : deleted_) ::rename(kept.c_str(), path.c_str());
  }

  unsigned failing_syncs = 0;  // the first directory syncs after a deletion
  Digest failing_carry{};
  bool carry_fails_at_sync = false;
  int open_error = 0;                               // of the first segment
  uint64_t unreadable_from = 0, unreadable_to = 0;  // bytes of the first segment

 private:
  static uint32_t segment_of(const std::string& path) {
    return segment_number(std::filesystem::path(path).filename().string());
  }
  static bool holds(const std::byte* from, size_t bytes, const Digest& digest) {
    for (size_t at = 0; at + sizeof(RecordHeader) <= bytes; at += kUnitBytes) {
      RecordHeader header;
      std::memcpy(&header, from + at, sizeof header);
      if (header.magic == RecordHeader::kMagic && header.digest == digest && header.length > 0)
        return true;
    }
    return false;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ++waits_;
    changed_.wait(lock, [&] { return dead_; });
  }

  const std::string attic_;
  const Hold hold_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool dead_ = false;
  unsigned waits_ = 0, syncs_after_unlink_ = 0;
  int first_fd_ = -1, failed_fd_ = -1;
  std::vector<std::pair<std::string, std::string>> deleted_;
};

}  // namespace peercached::disk
