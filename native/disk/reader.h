// Reads pages from the disk: the request queues, and the threads that read.
//
// Urgent batches go first; within a kind, first come first served. A batch is abandoned at its
// deadline, and its queued rest is skipped.
//
// Pages set together are neighbours in the log and are mostly wanted together. So neighbours in
// both batch and file are read at once, up to kRunBytesMax. Page by page, a disk with 16 000
// requests per second gives only 0.26 GB/s for 16 KiB pages. If such a read fails, each page is
// read on its own, so that one bad block costs one page.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "disk/aligned_buffer.h"
#include "disk/health.h"
#include "disk/io.h"
#include "disk/read_batch.h"
#include "disk/read_lane.h"
#include "disk/record_read.h"

namespace peercached::disk {

class Reader {
 public:
  // `damaged` is called for an unreadable or damaged page before its status is set.
  Reader(Io& io, Health& health, std::function<void(const IndexEntry&)> damaged);
  ~Reader();  // no read() may be running

  void read(std::shared_ptr<ReadBatch> batch, Deadline deadline, bool urgent);
  bool uses_uring() const { return uses_uring_; }

  struct Counters {
    std::atomic<uint64_t> pages{0}, payload_bytes{0}, disk_bytes{0}, disk_reads{0}, copied_bytes{0},
        corrupt{0}, failed{0};
  };
  const Counters& counters() const { return counters_; }

 private:
  // Reads in flight: 32 by two threads with io_uring, else 16 by 16 threads.
  static constexpr unsigned kUringThreads = 2, kUringDepth = 16, kPlainThreads = 16;
  // Twice as many buffers as reads: one half is verified and copied while the other half is read
  // into. Disks, above all virtual ones, answer many requests at once. Of 32 reads in flight, 31
  // came back together, and the disk then idled 13 % of the time.
  static constexpr unsigned kUringSlots = 2 * kUringDepth;
  // Small enough that a batch of a few MiB keeps two threads busy. At most kReadBytesMax.
  static constexpr uint64_t kRunBytesMax = 256 << 10;
  static constexpr uint64_t kSmallReadBytesMax = kRunBytesMax;

  // Jobs of a batch with neighbouring records on the disk.
  struct Run {
    std::shared_ptr<ReadBatch> batch;
    size_t first = 0, count = 0;

    const ReadJob& job() const { return batch->job(first); }
    FileRange blocks() const;
  };
  struct Slot {
    std::byte* small = nullptr;        // kSmallReadBytesMax; part of one shared allocation
    AlignedBuffer large;               // allocated at first use
    std::byte* bounce = nullptr;       // the buffer in use
    Run run;                           // the rest of it
    bool together = false;             // reading the whole run, else only its first record
    std::optional<RecordRead> record;  // the run's first
    IoClock* clock = nullptr;
  };

  static size_t run_length(const ReadBatch& batch, size_t first);
  void run(ReadLane& lane);
  bool next(Run& run, bool wait);
  void start(ReadLane& lane, Slot& slot, unsigned number);
  bool advance(Slot& slot, int error);
  bool advance_all(Slot& slot, int error);
  bool take(Slot& slot, const std::byte* blocks, bool& right);
  bool next_record(Slot& slot);
  void finish(const Run& run, PageStatus status);

  Io& io_;
  Health& health_;
  const std::function<void(const IndexEntry&)> damaged_;
  Counters counters_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Run> urgent_ GUARDED_BY(mutex_), background_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool uses_uring_ = false;
  std::vector<std::unique_ptr<ReadLane>> lanes_;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::disk
