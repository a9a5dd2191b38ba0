// The pages of one read(), shared between the caller and the reading threads. The caller leaves at
// its deadline, when threads may still be stuck in the disk.
//
// A thread must announce each copy into the caller's memory, and is refused once the caller has
// left. So nothing is written after read() has returned, and the caller waits only for copies,
// never for the disk.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
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
    MutexLock lock(mutex_);
    return abandoned_;
  }

  // False: the caller has left. Otherwise call leave_copy() soon.
  bool enter_copy() {
    MutexLock lock(mutex_);
    if (abandoned_) return false;
    ++copying_;
    return true;
  }
  void leave_copy() {
    MutexLock lock(mutex_);
    // The caller waits for copies only after abandoning; do not wake it for each page.
    if (--copying_ == 0 && abandoned_) changed_.notify_all();
  }
  void finish(size_t i, PageStatus status) {
    MutexLock lock(mutex_);
    if (abandoned_) return;
    jobs_[i].read->status = status;
    jobs_[i].read->checksum = jobs_[i].entry.checksum;
    if (--left_ == 0) changed_.notify_all();
  }

  // Returns when all jobs have a status; at the deadline the others get PageStatus::deadline.
  void wait(Deadline deadline) {
    MutexLock lock(mutex_);
    while (left_ > 0 && changed_.wait_until(mutex_, deadline.at)) {
    }
    if (left_ == 0) return;
    abandoned_ = true;
    while (copying_ > 0) changed_.wait(mutex_);
    for (const ReadJob& job : jobs_) {
      if (job.read->status == PageStatus::pending) job.read->status = PageStatus::deadline;
    }
  }

 private:
  std::vector<ReadJob> jobs_;
  mutable Mutex mutex_;
  CondVar changed_;
  size_t left_ GUARDED_BY(mutex_);
  size_t copying_ GUARDED_BY(mutex_) = 0;
  bool abandoned_ GUARDED_BY(mutex_) = false;
};

}  // namespace peercached::disk
