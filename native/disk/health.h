// Tracks whether the disk can be written and whether it answers, so that failures are reported.
//
//   on -> read_only   after a lasting error (no space, read-only, ...) or three errors in a row
//   read_only -> on   when a new segment could be made; tried after 1, 2, 4, ... 60 s
//   stalled           while some I/O has been in flight for longer than stall_ms
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "disk/disk_tier.h"

namespace peercached::disk {

// Tests shorten these.
struct HealthTimes {
  int64_t probe_ms_min = 1000, probe_ms_max = 60'000;
  int64_t stall_ms = 2000;
};

// When one thread entered its current system call; 0: it is in none.
struct IoClock {
  std::atomic<int64_t> since_ns{0};
};

class Health {
 public:
  explicit Health(HealthTimes times) : times_(times) {}

  // A batch was written; resets the count of failures in a row.
  void wrote();
  // A write failed with this errno. `what`: "writing to segment 7", for example.
  void write_failed(const std::string& what, int error);
  // A segment could not be made (or removed): stop writing until a probe succeeds.
  void cannot_make_room(const std::string& what, int error);
  // The path no longer leads to the opened directory: stop writing until it does.
  void lost_directory(const std::string& what);
  // A segment could be made: writing resumes.
  void recovered();
  bool writable() const { return writable_.load(std::memory_order_acquire); }
  TimePoint next_probe() const;  // while not writable

  bool stalled() const;
  DiskState state() const;
  std::string why() const;  // the cause, without the tier's path; empty if on
  // How often it stopped writing, and why the last time; kept when it is on again.
  uint64_t stops() const;
  std::string why_stopped() const;
  uint64_t write_errors() const { return write_errors_.load(std::memory_order_relaxed); }

  // The clock lives as long as this object.
  IoClock& add_clock();

 private:
  void stop_writing(const std::string& what, int error) REQUIRES(mutex_);
  void note_stopped(const std::string& why) REQUIRES(mutex_);
  int64_t oldest_io_ms() const;

  const HealthTimes times_;
  std::atomic<bool> writable_{true};
  std::atomic<uint64_t> write_errors_{0};
  mutable Mutex mutex_;
  int failures_in_a_row_ GUARDED_BY(mutex_) = 0;
  int64_t probe_ms_ GUARDED_BY(mutex_) = 0;
  TimePoint next_probe_ GUARDED_BY(mutex_){};
  std::string why_ GUARDED_BY(mutex_), why_stopped_ GUARDED_BY(mutex_);
  uint64_t stops_ GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<IoClock>> clocks_ GUARDED_BY(mutex_);
};

// Marks the calling thread as being in a system call.
class InIo {
 public:
  explicit InIo(IoClock& clock) : clock_(clock) {
    clock_.since_ns.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  ~InIo() { clock_.since_ns.store(0, std::memory_order_relaxed); }
  InIo(const InIo&) = delete;

 private:
  IoClock& clock_;
};

}  // namespace peercached::disk
