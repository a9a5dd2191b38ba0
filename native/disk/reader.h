// Reads of pages from the disk: who is next, and the threads that read.
//
// Urgent batches go first; within a kind, first come first served. Batches are abandoned at their
// deadline, and what is left of them in the queue is skipped.
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
    std::atomic<uint64_t> pages{0}, payload_bytes{0}, disk_bytes{0}, corrupt{0}, failed{0};
  };
  const Counters& counters() const { return counters_; }

 private:
  // Reads in flight: 32 by two threads with io_uring, else 16 by as many threads.
  static constexpr unsigned kUringThreads = 2, kUringDepth = 16, kPlainThreads = 16;

  using Ticket = std::pair<std::shared_ptr<ReadBatch>, size_t>;
  struct Slot {
    AlignedBuffer bounce;
    Ticket ticket;
    std::optional<RecordRead> record;
    IoClock* clock = nullptr;
  };

  void run(ReadLane& lane);
  bool next(Ticket& ticket, bool wait);
  void start(ReadLane& lane, Slot& slot, unsigned number);
  bool advance(Slot& slot, int error);
  void finish(const Slot& slot, PageStatus status);

  Io& io_;
  Health& health_;
  const std::function<void(const IndexEntry&)> damaged_;
  Counters counters_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Ticket> urgent_, background_;
  bool stopping_ = false;
  bool uses_uring_ = false;
  std::vector<std::unique_ptr<ReadLane>> lanes_;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::disk
