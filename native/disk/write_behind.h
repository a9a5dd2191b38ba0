// Write-behind: the queue of pages for the log, and the threads that write them.
//
// The queue is bounded in bytes. Pages that do not fit are refused at once, so that a set never
// waits for the disk. A page stays pinned and counted until its write is over. Pages wait up to
// kLingerMs to form a batch, unless much of the queue is full. Waking a thread for each MiB made a
// set take twice as long on two cores, because the thread copied on the set's processor.
//
// Removals are never refused and wait while the disk takes nothing. There is at most one per
// removed page, and one per cleared namespace.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "disk/log.h"

namespace peercached::disk {

class WriteBehind {
 public:
  WriteBehind(Log& log, Index& index, NamespaceNumbers& namespaces, Health& health,
              const DiskConfig& config, uint64_t segment_bytes, uint64_t last_sequence);

  // See DiskTier.
  PutOutcome put(const DiskPage& page, const std::byte* payload, std::function<void(bool)> done);
  void remove(const Digest& digest);
  void clear(const Digest& namespace_id, uint64_t below_epoch);
  bool flush(Deadline deadline);

  // This record cannot be read or was not carried forward: drops the page unless it has moved.
  void give_up(const Digest& digest, uint64_t sequence, uint32_t segment);
  void writable_again();
  // Refuses new pages, and writes queued ones until the deadline.
  void drain(Deadline deadline);
  // Ends the threads and gives up what is still queued. The log must be stopped.
  void join();

  void add_to(DiskStats& stats) const;

  static constexpr unsigned kWriters = 4;  // batches in flight
  static constexpr int kLingerMs = 2;

 private:
  struct QueuedPage {
    LogItem item;
    TimePoint since;
  };
  PutOutcome check(const DiskPage& page);
  PutOutcome admit(const DiskPage& page) const REQUIRES(mutex_);
  PutOutcome queue(const DiskPage& page, const std::byte* payload, std::function<void(bool)> done,
                   bool& wake) REQUIRES(mutex_);
  template <typename Condition>
  bool erase(const Digest& digest, Condition&& condition) REQUIRES(mutex_);
  void queue_removal(FooterEntry entry) REQUIRES(mutex_);
  void run(unsigned writer);
  bool wait_for_work() REQUIRES(mutex_);
  std::vector<LogItem> take_batch() REQUIRES(mutex_);
  void append(std::vector<LogItem>& items, AlignedBuffer& buffer, IoClock& clock);
  void finish(std::vector<LogItem>& items);
  void again(LogItem& item);
  void not_written(const LogItem& item);
  uint64_t oldest_outstanding() const REQUIRES(mutex_);

  Log& log_;
  Index& index_;
  NamespaceNumbers& namespaces_;
  Health& health_;
  const uint64_t queue_bytes_max_;
  const uint64_t hurry_bytes_;  // with this many waiting, no writer lingers
  const uint64_t page_bytes_max_;

  mutable Mutex mutex_;
  CondVar wake_, settled_;
  std::deque<QueuedPage> pages_ GUARDED_BY(mutex_);
  std::deque<LogItem> removals_ GUARDED_BY(mutex_);
  std::map<Digest, LogItem> clears_ GUARDED_BY(mutex_);  // the last one of each namespace
  uint64_t last_sequence_ GUARDED_BY(mutex_);
  uint64_t waiting_bytes_ GUARDED_BY(mutex_) = 0;  // of pages_
  uint64_t queued_bytes_ GUARDED_BY(mutex_) = 0;   // of pages not settled yet
  uint64_t queued_pages_ GUARDED_BY(mutex_) = 0;
  // The lowest sequence that each writer has; 0: none.
  uint64_t in_hand_[kWriters] GUARDED_BY(mutex_) = {};
  bool hurry_ GUARDED_BY(mutex_) = false;  // a thread waits in flush()
  bool stopping_ GUARDED_BY(mutex_) = false;
  Deadline stop_by_ GUARDED_BY(mutex_){};
  uint64_t puts_[kPutOutcomes] GUARDED_BY(mutex_) = {};  // by PutOutcome
  uint64_t removed_ GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::disk
