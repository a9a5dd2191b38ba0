// The log's head: places records in the open segment, writes them in batches, seals segments.
//
// Several threads append at once. Each gets a range of the file under the mutex, then builds and
// writes its batch without it. A record is placed only if the index still wants it at that moment,
// under the same mutex. A removed page leaves the index first; its removal is appended later. So
// the removal lies behind every copy of the page, and may be evicted with its segment.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "disk/aligned_buffer.h"
#include "disk/disk_tier.h"
#include "disk/health.h"
#include "disk/index.h"
#include "disk/segment.h"

namespace peercached::disk {

// Largest batch, unless a single record is larger: 2 MiB of payloads with their headers, also for
// pages of 128 KiB or 1 MiB.
inline constexpr uint64_t kBatchBytes = (2 << 20) + (64 << 10);
inline constexpr size_t kSegmentsMax = 2048;  // each has an open file

// The entry of a new record of this page, without its place.
FooterEntry page_entry(const DiskPage& page, uint64_t sequence);

struct LogItem {
  enum class Outcome : uint8_t {
    pending,   // not tried
    written,   // on disk, and the index knows its place
    unwanted,  // removed, replaced or dropped before it was placed
    failed,    // the disk failed; the record may or may not be there
  };
  FooterEntry entry;  // append() sets `unit`
  const std::byte* payload = nullptr;
  uint32_t carried_from = 0;           // the segment it is copied from; 0: new
  std::shared_ptr<Segment> segment;    // out: where it was placed
  std::function<void(bool)> done;      // for the caller; append() does not call it
  Outcome outcome = Outcome::pending;  // out
};

struct LogConfig {
  std::string folder;  // path of the segment files
  uint64_t size_bytes = 0, segment_bytes = 0;
  SyncPolicy sync = SyncPolicy::segment;
  Identity identity = {};
};

struct LogCounters {
  std::atomic<uint64_t> pages_written{0}, payload_bytes_written{0}, disk_bytes_written{0},
      pages_carried{0};
};

class Log {
 public:
  // `need_room` is called, without the mutex, when the oldest segment should be evicted.
  Log(Io& io, const LogConfig& config, SegmentSet& segments, Index& index, Health& health,
      uint32_t next_number, std::function<void()> need_room);

  // Appends one batch from the front of `items` and returns how many of them have an outcome. 0 if
  // the disk takes nothing now, or stop() was called. New pages wait for room in the directory.
  // Carried pages get 0 instead, because the thread that appends them is the one that makes room.
  enum class Kind : uint8_t { fresh, carried };
  size_t append(std::span<LogItem> items, Kind kind, AlignedBuffer& buffer, IoClock& clock);

  // Whether there is no room for another segment of new pages. One more segment stays reserved for
  // carried pages, so that fast writers cannot take the room they need.
  bool needs_room() const { return !has_room(2); }
  // Whether so many segments can be made.
  bool has_room(uint64_t segments) const;
  void room_made();
  // While unwritable: tries to make a segment, and reports the result to `health`.
  void probe(IoClock& clock);
  uint32_t head() const;  // number of the current or last written segment
  void stop();
  // Seals the open segment. Call when nobody appends any more.
  void close(IoClock& clock);

  const LogCounters& counters() const { return counters_; }

 private:
  struct Open {
    std::shared_ptr<Segment> segment;
    uint64_t end = kRecordsBegin;      // where the next batch goes
    uint64_t placed = 0;               // records
    std::vector<FooterEntry> entries;  // records that were written
    unsigned in_flight = 0;            // batches
    bool closing = false;              // takes no more; the thread of its last batch seals it
  };
  struct Batch {
    uint64_t offset = 0, bytes = 0;
    size_t items = 0, records = 0;  // items considered, and records among them to write
  };

  std::shared_ptr<Open> open_with_room(uint32_t length, Kind kind, IoClock& clock) REQUIRES(mutex_);
  bool open_segment(IoClock& clock) REQUIRES(mutex_);
  std::shared_ptr<Open> make_segment(uint32_t number, IoClock& clock);
  bool fits(const Open& open, uint64_t end) const REQUIRES(mutex_);
  bool wanted(const LogItem& item);
  Batch place(Open& open, std::span<LogItem> items) REQUIRES(mutex_);
  int write(const Open& open, const Batch& batch, std::span<const LogItem> items, bool sync,
            AlignedBuffer& buffer, IoClock& clock);
  void settle(std::span<LogItem> items, int error);
  void seal_segment(Open& open, IoClock& clock);

  Io& io_;
  const LogConfig config_;
  SegmentSet& segments_;
  Index& index_;
  Health& health_;
  const std::function<void()> need_room_;
  LogCounters counters_;

  mutable Mutex mutex_;
  CondVar changed_;  // room made, a segment opened, or stopping
  std::shared_ptr<Open> open_ GUARDED_BY(mutex_);
  uint32_t next_number_ GUARDED_BY(mutex_);
  bool opening_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace peercached::disk
