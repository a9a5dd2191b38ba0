// The pages of one read(), shared between the caller, who leaves at its deadline, and the threads
// that read, who may be stuck in the disk then.
//
// A thread asks before it writes into the caller's memory and says when it has; once the caller
// has left it is refused. So nothing is written behind the caller's back, and the caller waits
// only for copies, never for the disk.
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
  DiskRead* read = nullptr;   // the caller's; not to be touched after it has left
  std::byte* dest = nullptr;  // read->dest: a thread that starts late may not ask the caller
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

  // False: the caller has left. Else leave_copy() or finish() must follow soon.
  bool enter_copy() {
    std::lock_guard lock(mutex_);
    if (abandoned_) return false;
    ++copying_;
    return true;
  }
  void leave_copy() {
    std::lock_guard lock(mutex_);
    // Only then is it waited for: else each page would wake the caller.
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
