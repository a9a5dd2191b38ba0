// The disk tier: pages that outlive both the pool and the process.
//
// The engine sees DiskTier, the interface of any tier below the pool, for example an object store.
// open_disk_tier() makes the only one so far: an append-only log of segment files
// (docs/storage.md).
//
// put() takes a page from a pinned slot; the tier writes it after put() has returned. The tier
// evicts its oldest segment with all its pages. Recently read pages are first copied to the log's
// head, within a budget. read() verifies checksums: if a page is ok, it has the bytes that were
// put. A page that is damaged, evicted meanwhile or unreadable is not ok.
//
// Thread safe. Only read(), flush() and the destructor wait for the disk.
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

// When data moves from the disk's caches to the medium. All policies survive kill -9: pages
// reported as written are there. In a power cut, `segment` loses at most the open segment, and
// `batch` loses nothing that was reported as written.
enum class SyncPolicy : uint8_t { never, segment, batch };

// Whether a copy put at this position was removed since.
using RemovalJudge = std::function<bool(const Digest&, Position set_at)>;

struct DiskConfig {
  std::string path;            // a directory; made if its parent exists
  uint64_t size_bytes = 0;     // limit for all files together; at least kDiskBytesMin
  uint64_t segment_bytes = 0;  // 0: size / 64, within 16 and 256 MiB, or more
                               // to stay within 1024 segments
  SyncPolicy sync = SyncPolicy::segment;
  std::array<std::byte, 16> identity = {};  // owner of the pages; refuses a directory of another
  uint64_t queue_bytes = 256 << 20;         // pinned pages waiting for their write
  double carry = 0.25;  // largest share of a segment to carry forward when it is evicted
  std::string faults;   // for tests: see faulty_io.h; empty: none
  // For the content found at open. why_not() says, from the directory's note of the removals it has
  // seen, why none of it may be served ("" if it may). is_void() says which copies were removed
  // since they were put. Empty functions: all may be served.
  std::function<std::string(const TierNote&)> why_not;
  RemovalJudge is_void;
};
inline constexpr uint64_t kDiskBytesMin = 1 << 20;

// A page as the tier knows it.
struct DiskPage {
  Digest digest;
  Digest namespace_id;
  uint64_t epoch = 0;     // of the namespace
  uint64_t checksum = 0;  // XXH3-64 of the payload
  uint32_t length = 0;    // payload bytes
  Position set_at = 0;    // the newest removal when it was put
  Born born = 0;
  uint8_t uses = 0;  // from pools of this process, see set_uses(); found only, not put
};

enum class PutOutcome : uint8_t {
  queued,         // will be written; `done` is called once
  present,        // already on disk or queued with this length and checksum
  skipped_full,   // the queue is full
  skipped_off,    // the tier cannot write now: see stats().why
  skipped_old,    // its epoch was dropped
  skipped_large,  // empty, or larger than a quarter of a segment
  skipped_quota,  // its namespace would exceed its quota
};
inline constexpr size_t kPutOutcomes = static_cast<size_t>(PutOutcome::skipped_quota) + 1;

struct DiskRead {
  Digest digest;
  std::byte* dest = nullptr;  // room for `length` bytes
  uint32_t length = 0;        // as found by find(); a page of another length is absent
  // Out: ok, absent (not there, or damaged), deadline, error (the disk failed). Unless it is ok,
  // the content of `dest` is undefined.
  PageStatus status = PageStatus::pending;
  uint64_t checksum = 0;  // out, if ok: checksum of the bytes in `dest`
};

enum class DiskState : uint8_t {
  on,
  read_only,  // cannot write (full, read-only, failing); retries from time to time
  stalled,    // the disk has not answered for seconds: reads fail at once, writes wait
};

// The recovery at open.
struct DiskRecovery {
  uint64_t ms = 0, pages = 0, segments = 0;
  uint64_t walked = 0;    // segments without a valid footer: read in full
  uint64_t rejected = 0;  // deleted segments: foreign, other version or destroyed
  uint64_t corrupt = 0;   // torn or damaged records
  uint64_t removed = 0;   // pages removed since they were put
  std::string emptied;    // why no page was served; "": they were
};

struct DiskStats {
  DiskState state = DiskState::on;
  std::string why;                                        // the cause; empty if on
  std::string io;                                         // for example "direct, io_uring"
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
  std::string why_stopped;                     // `why` of the last time; kept when it is on again
  uint64_t removed = 0, removals_waiting = 0;  // waiting: not on disk yet
  // Reading.
  uint64_t pages_read = 0, payload_bytes_read = 0, disk_bytes_read = 0;
  uint64_t disk_reads = 0;         // requests to the disk; one may read several pages
  uint64_t copied_bytes_read = 0;  // copied from disk buffers to the pages' destinations
  uint64_t reads_absent = 0, reads_corrupt = 0, reads_failed = 0, reads_late = 0;
  DiskRecovery recovery;
};

// One namespace's use of the tier: queued pages and all live epochs together.
struct DiskNamespaceUse {
  uint64_t room_bytes = 0;            // file bytes as if each page came alone: payload + 4 to 8 KiB
  uint64_t quota_bytes = UINT64_MAX;  // UINT64_MAX: no quota
  uint64_t skipped_pages = 0;         // because of the quota
};

class DiskTier {
 public:
  virtual ~DiskTier() = default;

  // Takes a page. Its payload must stay in place until `done`. If the outcome is `queued`, a thread
  // of the tier calls `done` exactly once; otherwise nobody calls it. `written`: the page is on
  // disk (with SyncPolicy::batch on the medium), and find() finds it unless it was removed
  // meanwhile. A stored page with other content is removed first, for any outcome.
  virtual PutOutcome put(const DiskPage& page, const std::byte* payload,
                         std::function<void(bool written)> done) = 0;

  // Only pages on disk count; queued pages do not.
  virtual std::optional<DiskPage> find(const Digest& digest) const = 0;

  // Reads and verifies several pages at a time, `urgent` batches first. Returns when every page has
  // a status, and does not write to any `dest` after that. With `touches` it counts as use: see
  // touch().
  virtual void read(std::span<DiskRead> batch, Deadline deadline, bool urgent,
                    bool touches = true) = 0;
  // Marks pages as used: they are carried forward when their segment is evicted.
  virtual void touch(std::span<const Digest> digests) = 0;
  // How often the page was read from a pool, in all. It is kept in memory, and never falls.
  virtual void set_uses(const Digest& digest, uint8_t uses) = 0;
  // The pages that are evicted soon, those of each segment in the order of their puts. Without
  // those that would be carried forward, or that have fewer uses.
  virtual std::vector<DiskPage> leaving(uint8_t uses_min) = 0;
  // All pages with so many uses, in the order of their puts.
  virtual std::vector<DiskPage> used(uint8_t uses_min) = 0;

  // find() and read() no longer return the page once this has returned. A restart may find it again
  // unless DiskConfig::is_void says that it was removed.
  virtual void remove(std::span<const Digest> digests) = 0;
  // Likewise removes all pages of the namespace below this epoch; put() refuses such pages from now
  // on.
  virtual void drop_namespace(const Digest& namespace_id, uint64_t below_epoch) = 0;

  // For each namespace, the highest epoch that drop_namespace() was called with. Includes calls in
  // earlier runs of the daemon, if they were written to disk.
  virtual std::map<Digest, uint64_t> floors() const = 0;

  // Records that the directory has seen these removals; written to disk soon.
  virtual void note_removals(const TierNote& note) = 0;

  // From now on a page that would take the namespace above its quota is not written
  // (skipped_quota). Stored pages stay until their segment is evicted. All namespaces share the
  // log, and its oldest segment goes first.
  virtual void set_quota(const Digest& namespace_id, uint64_t room_bytes) = 0;
  virtual DiskNamespaceUse use_of(const Digest& namespace_id) const = 0;

  // Scans the pages on disk, in parts: appends some pages from `at` on, and moves `at` behind them.
  // A scan begins at 0. False: those were the last. It may miss or include a page written or lost
  // since its first part.
  virtual bool scan(uint64_t& at, std::vector<DiskPage>& pages) const = 0;

  // Waits until all puts and removals so far are on disk or given up; false at the deadline.
  virtual bool flush(Deadline deadline) = 0;
  virtual DiskStats stats() const = 0;
};

// Receives pages that the tier lost: evicted with their segment, or damaged. Pages taken by
// remove() or drop_namespace() are not included. Called without the tier's locks, from any of its
// threads or within read(). It may come late: ask find() whether the page is there again.
using DiskEvicted = std::function<void(std::span<const DiskPage>)>;

// Why the directory cannot be used, with the remedy: locked by another daemon, of another owner or
// version, missing, not writable, too small.
class DiskError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Locks the directory and recovers its content; throws DiskError. The destructor writes queued
// pages for at most two seconds and calls `done` for all.
std::unique_ptr<DiskTier> open_disk_tier(const DiskConfig& config, DiskEvicted on_evicted);

}  // namespace peercached
