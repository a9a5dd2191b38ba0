#include "disk/recovery.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/error_text.h"
#include "common/mutex.h"
#include "disk/disk_tier.h"
#include "disk/segment_scan.h"

namespace peercached::disk {
namespace {

class Recovery {
 public:
  Recovery(Io& io, const Folder& folder, const Identity& identity, bool sync, SegmentSet& segments,
           Index& index)
      : io_(io),
        folder_(folder),
        identity_(identity),
        sync_(sync),
        segments_(segments),
        index_(index) {}

  void scan_all() {
    const size_t threads =
        std::min<size_t>(folder_.segments.size(), 2 * std::thread::hardware_concurrency() + 1);
    std::vector<std::jthread> running;
    for (size_t i = 0; i < threads; ++i) running.emplace_back([this] { scan_some(); });
    running.clear();
    if (deleted_ && sync_) io_.sync_directory(folder_.inside);
  }

  Mutex mutex;
  Recovered result GUARDED_BY(mutex);
  // Why a segment could not be opened, if not because of the disk.
  std::string refusal GUARDED_BY(mutex);
  std::map<Digest, uint64_t> floors GUARDED_BY(mutex);

 private:
  void scan_some() {
    for (;;) {
      const size_t i = next_.fetch_add(1);
      if (i >= folder_.segments.size()) return;
      const uint32_t number = folder_.segments[i];
      ScannedSegment scanned = scan_segment(io_, folder_.inside, number, identity_);
      if (scanned.verdict == ScannedSegment::Verdict::refused) {
        refuse(number, scanned.error);
        continue;
      }
      merge(scanned, number);
      settle(scanned, number);
    }
  }

  void merge(const ScannedSegment& scanned, uint32_t number) {
    uint64_t last_sequence = 0;
    for (const FooterEntry& found : scanned.entries) {
      last_sequence = std::max(last_sequence, found.sequence);
      if (found.kind == RecordKind::clear) {
        MutexLock lock(mutex);
        uint64_t& floor = floors[found.namespace_id];
        floor = std::max(floor, found.epoch);
        continue;
      }
      index_.merge_newest({found.digest, found.namespace_id, found.epoch, found.checksum,
                           found.length, found.set_at, found.born},
                          {found.sequence, number, found.unit});
    }
    MutexLock lock(mutex);
    result.last_sequence = std::max(result.last_sequence, last_sequence);
    DiskRecovery& report = result.report;
    report.walked += scanned.verdict == ScannedSegment::Verdict::by_records ||
                     scanned.verdict == ScannedSegment::Verdict::unreadable;
    report.rejected += scanned.verdict == ScannedSegment::Verdict::rejected;
    report.corrupt += scanned.corrupt;
    report.segments += scanned.segment != nullptr;
  }

  void refuse(uint32_t number, int error) {
    const std::string remedy = error == -EACCES || error == -EPERM
                                   ? "let the daemon's user read and write it"
                                   : "raise the limit (LimitNOFILE= of the unit), or free memory";
    MutexLock lock(mutex);
    refusal = segment_path(folder_.path, number) + " cannot be opened: " + error_text(-error) +
              "; " + remedy;
  }

  // Keeps the file, sealed if possible, or deletes it.
  void settle(ScannedSegment& scanned, uint32_t number) {
    const bool walked = scanned.verdict != ScannedSegment::Verdict::by_footer;
    if (scanned.segment == nullptr || (walked && scanned.entries.empty())) {
      io_.unlink(segment_path(folder_.inside, number));
      deleted_ = true;
      return;
    }
    Segment& segment = *scanned.segment;
    if (walked && scanned.writable) {
      uint64_t file_bytes = 0;
      if (write_footer(io_, segment, scanned.entries, scanned.records_end, sync_, file_bytes) == 0)
        segment.file_bytes = file_bytes;  // else the next start walks it again
    }
    segment.sealed.store(true, std::memory_order_release);
    segments_.add(std::move(scanned.segment));
    MutexLock lock(mutex);
    result.next_number = std::max(result.next_number, number + 1);
  }

  Io& io_;
  const Folder& folder_;
  const Identity& identity_;
  const bool sync_;
  SegmentSet& segments_;
  Index& index_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> deleted_{false};
};

}  // namespace

Recovered recover(Io& io, const Folder& folder, const Identity& identity, bool sync,
                  SegmentSet& segments, Index& index, NamespaceNumbers& namespaces,
                  const RemovalJudge& is_void) {
  const TimePoint begin = Clock::now();
  Recovery recovery(io, folder, identity, sync, segments, index);
  recovery.scan_all();
  MutexLock lock(recovery.mutex);  // free: the threads have ended
  if (!recovery.refusal.empty()) throw DiskError(recovery.refusal);
  for (const auto& [id, epoch] : recovery.floors) namespaces.raise_floor(id, epoch);
  uint64_t all_removed = 0;
  index.scan([&](const IndexEntry& entry) {
    const bool removed = is_void && entry.length > 0 && is_void(entry.digest, entry.set_at);
    all_removed += removed;
    return removed || entry.length == 0 || !index.live(entry) ? Index::Verdict::erase
                                                              : Index::Verdict::keep;
  });
  Recovered& result = recovery.result;
  result.report.removed = all_removed;
  result.report.pages = index.totals().pages;
  result.report.ms = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
  return result;
}

}  // namespace peercached::disk
