// The disk tier: pages that outlive the pool, and the process.
//
//   ColdTier          what the engine knows of any tier below the pool; an object store could be
//   one open_disk_tier()  the one there is: an append-only log of segment files
//   (docs/disk-format.md)
//
// A page comes by put() from a pinned slot and is written after put() has returned. The oldest
// segment is evicted with all its pages; those that were read lately are copied to the log's head
// first, within a budget. read() verifies checksums: if a page is ok, these are the bytes that were
// put. A page that is damaged, was evicted meanwhile or cannot be read is not ok.
//
// Thread safe throughout. No call but read(), flush() and the destructor waits for the disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

// When data goes from the disk's caches to the medium. Against kill -9 all are alike: what was
// reported as written is there. Against power cuts `segment` loses at most the open segment, and
// `batch` nothing that was reported as written.
enum class SyncPolicy : uint8_t { never, segment, batch };

// Whether a copy that was put at this position was removed since.
using RemovalJudge = std::function<bool(const Digest&, Position set_at)>;

struct DiskConfig {
  std::string path;            // a directory; made if its parent exists
  uint64_t size_bytes = 0;     // of all files together, enforced; at least kDiskBytesMin
  uint64_t segment_bytes = 0;  // 0: size / 64 within 16 and 256 MiB, more where that is over 1024
  SyncPolicy sync = SyncPolicy::segment;
  std::array<std::byte, 16> identity = {};  // whose pages these are; another's directory is refused
  uint64_t queue_bytes = 256 << 20;         // of pinned pages waiting for their write
  double carry = 0.25;  // share of a segment that may be carried forward when it is evicted
  std::string faults;   // for tests: see faulty_io.h; empty: none
  // Of what the directory holds at open: why none of it may be served, from its note of the
  // removals that it has seen ("": it may), and which copies were removed since they were put.
  // Empty: all may.
  std::function<std::string(const TierNote&)> why_not;
  RemovalJudge is_void;
};
inline constexpr uint64_t kDiskBytesMin = 1 << 20;

// What the tier knows of a page.
struct DiskPage {
  Digest digest;
  Digest namespace_id;
  uint64_t epoch = 0;     // of the namespace
  uint64_t checksum = 0;  // XXH3-64 of the payload
  uint32_t length = 0;    // payload bytes
  Position set_at = 0;    // of the newest removal when it was put
};

enum class PutOutcome : uint8_t {
  queued,         // will be written; `done` is called once
  held,           // is on disk, or queued already, with this length and checksum
  skipped_full,   // the queue is full
  skipped_off,    // the tier does not write now: stats().why says why
  skipped_old,    // its epoch was dropped
  skipped_large,  // empty, or larger than a quarter of a segment
  skipped_quota,  // its namespace would hold more than its quota
};

struct DiskRead {
  Digest digest;
  std::byte* dest = nullptr;  // room for `length` bytes
  uint32_t length = 0;        // as find() told; another one is absent
  // Out: ok, absent (not there, or damaged), deadline, error (the disk failed). Unless it is ok,
  // `dest` holds anything.
  PageStatus status = PageStatus::pending;
  uint64_t checksum = 0;  // out, if ok: that of the bytes in `dest`
};

enum class DiskState : uint8_t {
  on,
  read_only,  // cannot write (full, read-only, failing); asks the disk again from time to time
  stalled,    // the disk has not answered for seconds: reads are refused at once, writes wait
};

struct DiskStats {
  DiskState state = DiskState::on;
  std::string why;                                        // a sentence, unless on
  std::string io;                                         // "direct, io_uring": how it does its I/O
  uint64_t size_bytes = 0, used_bytes = 0, segments = 0;  // of files
  uint64_t pages = 0, payload_bytes = 0, index_bytes = 0;
  uint64_t queued_pages = 0, queued_bytes = 0;
  uint64_t page_bytes_max = 0;  // larger pages are not written (skipped_large)
  // Writing. Write amplification is disk_bytes_written / payload_bytes_written.
  uint64_t pages_written = 0, payload_bytes_written = 0, disk_bytes_written = 0;
  uint64_t pages_carried = 0, pages_evicted = 0, segments_evicted = 0;
  uint64_t skipped_full = 0, skipped_off = 0, skipped_old = 0, skipped_large = 0, skipped_quota = 0;
  uint64_t write_errors = 0;
  uint64_t write_stops = 0;                    // how often it became read_only
  std::string why_stopped;                     // `why` of the last time, also once it is on again
  uint64_t removed = 0, removals_waiting = 0;  // waiting: not on disk yet
  // Reading.
  uint64_t pages_read = 0, payload_bytes_read = 0, disk_bytes_read = 0;
  uint64_t disk_reads = 0;         // asked of the disk: neighbours come with one
  uint64_t copied_bytes_read = 0;  // between the disk's buffers and where pages were wanted
  uint64_t reads_absent = 0, reads_corrupt = 0, reads_failed = 0, reads_late = 0;
  // The recovery at open.
  uint64_t recovery_ms = 0, recovered_pages = 0, recovered_segments = 0;
  uint64_t recovery_walked = 0;    // segments without a good footer: read in full
  uint64_t recovery_rejected = 0;  // segments, foreign, of another version or destroyed: deleted
  uint64_t recovery_corrupt = 0;   // records that were torn or damaged
  uint64_t recovery_removed = 0;   // pages that were removed since they were put
  std::string recovery_emptied;    // why nothing of it was served; "": it was
};

// What one namespace holds of the tier, queued pages and those of all epochs that count together.
struct DiskNamespaceUse {
  uint64_t room_bytes = 0;  // of files, as if each page came alone: 4 to 8 KiB above its payload
  uint64_t quota_bytes = UINT64_MAX;  // UINT64_MAX: it has none
  uint64_t skipped_pages = 0;         // for the quota's sake
};

class ColdTier {
 public:
  virtual ~ColdTier() = default;

  // Takes a page whose payload stays where it is until `done`: called exactly once if the outcome
  // is `queued`, from a thread of the tier, and never otherwise. `written`: the page is on disk now
  // (with SyncPolicy::batch on the medium) and found by find(), unless it was removed meanwhile.
  // A page held with another content is removed first, whatever the outcome.
  virtual PutOutcome put(const DiskPage& page, const std::byte* payload,
                         std::function<void(bool written)> done) = 0;

  // Pages on disk; those that are only queued are not.
  virtual void contains(std::span<const Digest> digests, std::span<uint8_t> out) const = 0;
  virtual std::optional<DiskPage> find(const Digest& digest) const = 0;

  // Reads and verifies, several at a time, `urgent` batches before others; returns when every
  // page has a status. Nothing is written into a `dest` after that. Counts as use: see touch().
  virtual void read(std::span<DiskRead> batch, Deadline deadline, bool urgent) = 0;
  // These pages were used: they are carried forward when their segment is evicted.
  virtual void touch(std::span<const Digest> digests) = 0;

  // Gone for find() and read() when it returns. A restart may find it again where is_void
  // (DiskConfig) does not say that it was removed.
  virtual void remove(std::span<const Digest> digests) = 0;
  // Likewise all pages of the namespace whose epoch is below that; they cannot be put any more.
  virtual void drop_namespace(const Digest& namespace_id, uint64_t below_epoch) = 0;

  // For each namespace the highest epoch given to drop_namespace(), in earlier lives too if the
  // drop was written down.
  virtual std::map<Digest, uint64_t> floors() const = 0;

  // The directory has seen these removals; written down soon.
  virtual void note_removals(const TierNote& note) = 0;

  // From now on a page that would take the namespace above its quota is not written
  // (skipped_quota). Pages that are there already stay until their segment is evicted: all
  // namespaces share the log, and its oldest segment goes first.
  virtual void set_quota(const Digest& namespace_id, uint64_t room_bytes) = 0;
  virtual DiskNamespaceUse use_of(const Digest& namespace_id) const = 0;

  // Calls `visit` with batches of the pages on disk. A page written or lost meanwhile may or may
  // not be seen.
  virtual void scan(const std::function<void(std::span<const DiskPage>)>& visit) const = 0;

  // Waits until what was put and removed so far is on disk or given up; false at the deadline.
  virtual bool flush(Deadline deadline) = 0;
  virtual DiskStats stats() const = 0;
};

// Pages that the tier has lost: evicted with their segment, or found damaged. Not those that
// remove() or drop_namespace() took. Called without the tier's locks, from any of its threads or
// from within read(). It may come late: ask find() whether the page is there again.
using DiskEvicted = std::function<void(std::span<const DiskPage>)>;

// The directory cannot be used, and why, with the remedy: locked by another daemon, another's, of
// another version, missing, not writable, too small.
class DiskError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Locks the directory and recovers what is there; throws DiskError. The destructor writes out what
// is queued, as far as the disk takes it within two seconds, and calls `done` for all.
std::unique_ptr<ColdTier> open_disk_tier(const DiskConfig& config, DiskEvicted on_evicted);

}  // namespace peercached
