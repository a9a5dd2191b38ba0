// Reads of pages from the disk: who is next, and the threads that read.
//
// Urgent batches go first; within a kind, first come first served. Batches are abandoned at their
// deadline, and what is left of them in the queue is skipped.
//
// Pages that were set together lie one behind the other in the log, and are mostly wanted together:
// those that follow each other in a batch and on the disk are read at once, up to kRunBytesMax. A
// disk of 16 000 requests a second gives 0.26 GB/s of pages of 16 KiB one by one. If such a read
// fails, each page is read on its own, so that one bad block costs one page.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "disk/aligned_buffer.h"
#include "disk/health.h"
#include "disk/io.h"
#include "disk/read_batch.h"
#include "disk/read_lane.h"
#include "disk/record_read.h"

namespace peercached::disk {

class Reader {
 public:
  // `damaged` is called for a page that cannot be read as it should, before its status is given.
  Reader(Io& io, Health& health, std::function<void(const IndexEntry&)> damaged);
  ~Reader();  // no read() is under way any more

  void read(std::shared_ptr<ReadBatch> batch, Deadline deadline, bool urgent);
  bool uses_uring() const { return uses_uring_; }

  struct Counters {
    std::atomic<uint64_t> pages{0}, payload_bytes{0}, disk_bytes{0}, disk_reads{0}, copied_bytes{0},
        corrupt{0}, failed{0};
  };
  const Counters& counters() const { return counters_; }

 private:
  // Reads in flight: 32 by two threads with io_uring, else 16 by as many threads.
  static constexpr unsigned kUringThreads = 2, kUringDepth = 16, kPlainThreads = 16;
  // Twice as many buffers: what has come is summed and copied from the one half while the other
  // is read into. Disks, virtual ones above all, answer many requests at a time: of 32 in flight
  // 31 came back at once, and then the disk had nothing to do for 13 % of the time.
  static constexpr unsigned kUringSlots = 2 * kUringDepth;
  // Two threads must find something to do in a batch of a few MiB. At most kReadBytesMax.
  static constexpr uint64_t kRunBytesMax = 256 << 10;
  static constexpr uint64_t kSmallReadBytesMax = kRunBytesMax;

  // Jobs of a batch that lie one behind the other on the disk.
  struct Run {
    std::shared_ptr<ReadBatch> batch;
    size_t first = 0, count = 0;

    const ReadJob& job() const { return batch->job(first); }
    FileRange blocks() const;
  };
  struct Slot {
    std::byte* small = nullptr;   // kSmallReadBytesMax; of one piece of memory with the others'
    AlignedBuffer large;          // once it was needed
    std::byte* bounce = nullptr;  // the one in use
    Run run;                      // what is left of it
    bool together = false;        // all of it is being read, else its first record
    std::optional<RecordRead> record;  // its first
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
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Run> urgent_, background_;
  bool stopping_ = false;
  bool uses_uring_ = false;
  std::vector<std::unique_ptr<ReadLane>> lanes_;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::disk
