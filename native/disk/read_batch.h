// The pages of one read(), shared between the caller and the reading threads. The caller leaves at
// its deadline, when threads may still be stuck in the disk.
//
// A thread must announce each copy into the caller's memory, and is refused once the caller has
// left. So nothing is written after read() has returned, and the caller waits only for copies,
// never for the disk.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/clock.h"
#include "disk/index.h"
#include "disk/segment.h"

namespace peercached::disk {

struct ReadJob {
  IndexEntry entry;
  std::shared_ptr<Segment> segment;
  DiskRead* read = nullptr;   // the caller's; do not touch after it has left
  std::byte* dest = nullptr;  // read->dest, copied: a late thread must not touch `read`
};

class ReadBatch {
 public:
  explicit ReadBatch(std::vector<ReadJob> jobs) : jobs_(std::move(jobs)), left_(jobs_.size()) {}

  const ReadJob& job(size_t i) const { return jobs_[i]; }
  size_t size() const { return jobs_.size(); }
  bool abandoned() const {
    std::lock_guard lock(mutex_);
    return abandoned_;
  }

  // False: the caller has left. Otherwise call leave_copy() soon.
  bool enter_copy() {
    std::lock_guard lock(mutex_);
    if (abandoned_) return false;
    ++copying_;
    return true;
  }
  void leave_copy() {
    std::lock_guard lock(mutex_);
    // The caller waits for copies only after abandoning; do not wake it for each page.
    if (--copying_ == 0 && abandoned_) changed_.notify_all();
  }
  void finish(size_t i, PageStatus status) {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    jobs_[i].read->status = status;
    jobs_[i].read->checksum = jobs_[i].entry.checksum;
    if (--left_ == 0) changed_.notify_all();
  }

  // Returns when all jobs have a status; at the deadline the others get PageStatus::deadline.
  void wait(Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_until(lock, deadline.at, [&] { return left_ == 0; })) return;
    abandoned_ = true;
    changed_.wait(lock, [&] { return copying_ == 0; });
    for (const ReadJob& job : jobs_) {
      if (job.read->status == PageStatus::pending) job.read->status = PageStatus::deadline;
    }
  }

 private:
  std::vector<ReadJob> jobs_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t left_;
  size_t copying_ = 0;
  bool abandoned_ = false;
};

}  // namespace peercached::disk
