// The tier's housekeeping thread. It evicts the oldest segment when room is needed, and probes a
// failing disk. It checks that the directory is still there. It erases from the index the pages
// that drop_namespace() dropped.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "disk/folder.h"
#include "disk/log.h"
#include "disk/record_read.h"

namespace peercached::disk {

class Maintenance {
 public:
  // Removes a page from the index and queues a removal record, but only if the index still points
  // to the record with this sequence in this segment.
  using GiveUp = std::function<void(const Digest&, uint64_t sequence, uint32_t segment)>;

  Maintenance(Io& io, const LogConfig& config, double carry, const Folder& folder, Log& log,
              SegmentSet& segments, Index& index, Health& health, DiskEvicted on_evicted,
              GiveUp give_up, std::function<void()> writable_again);

  void start();
  void stop();  // ends the thread; a running eviction is finished first
  void wake();
  void sweep_dropped();                      // soon, on the thread
  void note_removals(const TierNote& note);  // likewise

  void add_to(DiskStats& stats) const;

 private:
  void run();
  void work(const TierNote& note, bool sweep);
  bool stopping();
  bool directory_is_there();  // checks at most once a second
  void erase_dropped();
  void write_note(const TierNote& note);
  bool evict_oldest();
  std::vector<IndexedPage> worth_carrying(const Segment& segment);
  void carry(const Segment& segment, std::span<const IndexedPage> pages);
  std::vector<DiskPage> forget(const Segment& segment);
  size_t load(const Segment& segment, std::span<const IndexedPage> pages, AlignedBuffer& payloads,
              std::vector<LogItem>& items);

  Io& io_;
  const LogConfig config_;
  const uint64_t carry_bytes_max_;
  const Folder& folder_;
  TimePoint look_at_{};
  bool is_there_ = true;
  Log& log_;
  SegmentSet& segments_;
  Index& index_;
  Health& health_;
  const DiskEvicted on_evicted_;
  const GiveUp give_up_;
  const std::function<void()> writable_again_;
  IoClock& clock_;
  std::atomic<uint64_t> pages_evicted_{0}, segments_evicted_{0};

  Mutex mutex_;
  CondVar wake_;
  bool woken_ GUARDED_BY(mutex_) = false;
  bool sweep_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  TierNote note_ GUARDED_BY(mutex_);
  TierNote written_note_;  // of the thread
  std::thread thread_;
};

}  // namespace peercached::disk
