// Pages on their way to the log, and the threads that take them there.
//
// Bounded in bytes: what does not fit is refused at once, so that a set never waits for the disk.
// A page stays pinned, and counted, until its write is over. Pages wait up to kLingerMs for
// company, unless much of the queue is full: a set that wakes a thread for each of its MiB, which
// then copies on the processor where the set does, took twice its time on two cores. Removals are
// never refused; while the disk takes nothing they wait (there is at most one for each page that
// was there, and for each namespace that was cleared).
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "disk/log.h"

namespace peercached::disk {

class WriteBehind {
 public:
  WriteBehind(Log& log, Index& index, NamespaceTable& namespaces, Health& health,
              const DiskConfig& config, uint64_t segment_bytes, uint64_t last_sequence);

  // As in ColdTier.
  PutOutcome put(const DiskPage& page, const std::byte* payload, std::function<void(bool)> done);
  void remove(const Digest& digest);
  void clear(const Digest& namespace_id, uint64_t below_epoch);
  bool flush(Deadline deadline);

  // This record of the page cannot be read, or was not carried forward: the page is no more, unless
  // it has moved.
  void give_up(const Digest& digest, uint64_t sequence, uint32_t segment);
  void writable_again();
  // Takes nothing new, and writes out what is queued, until the deadline.
  void drain(Deadline deadline);
  // Ends the threads; what is still queued then is given up. The log was stopped before.
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
  template <typename Condition>
  bool erase(const Digest& digest, Condition&& condition);  // with mutex_ held
  void queue_removal(FooterEntry entry);                    // likewise
  void run(unsigned writer);
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  std::vector<LogItem> take_batch();
  void append(std::vector<LogItem>& items, AlignedBuffer& buffer, IoClock& clock);
  void finish(std::vector<LogItem>& items);
  void again(LogItem& item);
  void not_written(const LogItem& item);
  uint64_t oldest_outstanding() const;

  Log& log_;
  Index& index_;
  NamespaceTable& namespaces_;
  Health& health_;
  const uint64_t queue_bytes_max_;
  const uint64_t hurry_bytes_;  // when so many wait, nobody lingers
  const uint64_t page_bytes_max_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, settled_;
  std::deque<QueuedPage> pages_;
  std::deque<LogItem> removals_;
  std::map<Digest, LogItem> clears_;  // of each namespace the last
  uint64_t last_sequence_;
  uint64_t waiting_bytes_ = 0;  // of pages_
  uint64_t held_bytes_ = 0;     // of pages not settled yet
  uint64_t held_pages_ = 0;
  uint64_t in_hand_[kWriters] = {};  // lowest sequence that a writer has; 0: none
  bool hurry_ = false;               // somebody waits in flush()
  bool stopping_ = false;
  Deadline stop_by_{};
  uint64_t skipped_full_ = 0, skipped_off_ = 0, skipped_old_ = 0, skipped_large_ = 0,
           skipped_quota_ = 0;
  uint64_t removed_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::disk
