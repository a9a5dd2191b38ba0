// The published pool: memory owned by this daemon, the source of every READ.
//
//   pool  = units of 4 KiB
//   span  = a run of units given to one size class; chosen so that its tail waste stays small
//   class = one slot stride: 64-byte header + payload, the payload rounded up to 4 KiB
//   slot  = one page's place
//
// Life of a slot:   free -> reserved -> committed -> (evicted | removed) -> free
// A reserved slot is invisible to find/pin, scans and summaries. Leaving `committed`
// first makes the header invalid (release order), and only then may the payload change:
// a remote reader relies on it (slot_header.h). A pinned slot is never evicted; one that is
// removed while pinned becomes invisible at once and is freed by its last unpin.
//
// Eviction is least-recently-used over the whole pool, whatever the class, and drops the
// tail of a chain before its head: within a batch the first key is the most recent, and
// a batch that continues a chain is placed just behind its parent.
//
// Thread safe. Every public call takes the pool's one mutex at most once per batch (a scan: once
// per 1024 slots); page bytes are never touched under it. All operations are O(1) per page, but
// for finding a run of units for a new span.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/summary.h"
#include "common/types.h"
#include "pool/pool_file.h"
#include "pool/recovery.h"

namespace peercached {

struct PoolConfig {
  uint64_t size_bytes = 0;  // rounded down to units; at least 1 MiB
  Incarnation incarnation = 0;
  bool huge_pages = false;        // MFD_HUGETLB; an error if there are too few, never a fallback
  unsigned prefault_threads = 0;  // 0: one per processor, at most 16
  double high_watermark = 0.98;   // used fraction at which background eviction starts
  double low_watermark = 0.96;    // and at which it stops
  PoolFileConfig file;            // where it lives and survives the process; by default nowhere
  // Of a pool in a file. A page is written with the position of the newest removal. After a restart
  // the page is void if it was removed since.
  std::function<Position()> position;
  std::function<bool(const Digest&, Position set_at)> is_void;
};

// Whose a page is. `slot` is a number of this process for one epoch of one namespace: what
// sweep_namespace() takes. The rest is kept with the page in a pool in a file; without an id the
// page ends with the process.
struct PageNamespace {
  PageNamespace(uint32_t slot_number, Digest namespace_id = {}, uint64_t epoch_number = 0)
      : slot(slot_number), id(namespace_id), epoch(epoch_number) {}
  uint32_t slot;
  Digest id;
  uint64_t epoch;
};

// A pinned page: valid until unpinned.
struct PinnedPage {
  std::byte* header = nullptr;  // SlotHeader, followed by the payload
  uint32_t slot = UINT32_MAX;   // handle for unpin; UINT32_MAX: not held
  uint32_t length = 0;
  uint64_t checksum = 0;
  std::byte* payload() const { return header + sizeof(SlotHeader); }
  explicit operator bool() const { return slot != UINT32_MAX; }
};

enum class ReserveOutcome : uint8_t {
  reserved,   // fill the payload, then commit or abort
  held,       // already committed here with this length; pinned for you
  busy,       // another thread has it reserved: wait_settled, then ask again; or it is held
              // with another length and pinned: ask again later
  no_space,   // everything evictable is gone
  too_large,  // larger than the pool
};

struct Reservation {
  ReserveOutcome outcome = ReserveOutcome::no_space;
  PinnedPage page;  // for reserved: where to write; for held: the page
};

struct PageRequest {
  Digest digest;
  uint32_t length = 0;
};

// A page as warmest() tells of it.
struct WarmPage {
  RecordRow row;
  uint32_t namespace_slot = 0;
  uint32_t idle_ms = 0;  // since it was used last
  uint64_t stamp = 0;    // greater: used more recently
};

struct Evicted {
  uint64_t pages = 0;
  uint64_t bytes = 0;  // of payload
};

// What a namespace holds, and what its quota did.
struct NamespaceUse {
  uint64_t bytes = 0;  // of slots, with their headers
  uint64_t quota_bytes = UINT64_MAX;
  uint64_t evictions = 0, refused = 0;
};

struct PoolStats {
  uint64_t capacity_bytes = 0;  // of all units
  uint64_t used_bytes = 0;      // stride bytes of slots not free
  uint64_t payload_bytes = 0;   // committed payload
  uint64_t keys = 0;            // committed
  uint64_t reserved = 0, pins = 0;
  uint64_t sets = 0, evictions = 0, removals = 0, span_moves = 0, no_space = 0;
  struct Class {
    uint64_t stride_bytes, slots, used, spans, evictions;
    uint64_t pinned;  // slots, or being set: not to be evicted right now
  };
  std::vector<Class> classes;
};

class Pool {
 public:
  using RemovalJudge = std::function<bool(const Digest&, Position set_at)>;
  // Pages leave by eviction in batches. Called without the pool's mutex, from whichever
  // thread evicted; rows have kRecordWithdraw set and a fresh generation.
  using EvictSink = std::function<void(std::span<const RecordRow>)>;
  // The namespaces of the pages found in the file, each once: fills in their `slot`, 0 for pages
  // that must not be served. Called once, by the constructor.
  using NamespaceJudge = std::function<void(std::span<PageNamespace>)>;

  // Maps and prefaults, and recovers what the file holds: those pages are committed under this
  // incarnation, not published, least recently used first by the order of their setting. Throws
  // std::runtime_error with the value and the remedy when the memory is not to be had.
  Pool(const PoolConfig& config, EvictSink on_evict, NamespaceJudge judge = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::byte* base() const;
  uint64_t size_bytes() const;
  int memory_fd() const;  // the memfd behind the mapping, for sendfile and registration

  // --- set ---------------------------------------------------------------------------
  // One Reservation per request, in order. `parent`: the key just before the first one in
  // its chain, or nullptr. Evicts inline when the background could not keep up. A page held
  // with another length is dropped (its withdrawal goes to the sink) and reserved anew.
  void reserve(std::span<const PageRequest> requests, const Digest* parent, const PageNamespace& ns,
               std::span<Reservation> out);
  // Header last, in release order; fills rows[i] with the record to publish. The slots stay
  // pinned for the caller, so that no withdrawal can overtake the publication.
  // `idle_ms`: of pages that were last used that long ago, elsewhere; else they are used now.
  void commit(std::span<const PinnedPage> pages, std::span<const uint64_t> checksums,
              std::span<RecordRow> rows, std::optional<uint32_t> idle_ms = {});
  void abort(std::span<const PinnedPage> pages);
  // Waits until nobody has `digest` reserved; false at the deadline.
  bool wait_settled(const Digest& digest, Deadline deadline);

  // The records of pinned, committed pages, for publishing again.
  void rows_of(std::span<const PinnedPage> pages, std::span<RecordRow> rows) const;
  // Withdrawals, appended, of pinned pages that were removed since they were pinned: the same
  // ones as remove() gave. Whoever publishes a page sends them behind its record, because the
  // remover's may have gone ahead of it. Owners keep no tombstones: the record would stay.
  void withdrawals_of(std::span<const PinnedPage> pages, std::vector<RecordRow>& rows) const;
  // "Visible when told": which pinned pages no owner has accepted yet.
  void mark_published(std::span<const RecordRow> rows);
  bool is_published(const PinnedPage& page) const;

  // --- get ---------------------------------------------------------------------------
  // Pins what is committed here; an empty PinnedPage for the rest. With `touch`, recency
  // is refreshed, the first key as the most recent.
  void pin(std::span<const Digest> digests, const Digest* parent, bool touch,
           std::span<PinnedPage> out);
  // Pins one slot by its record, for a peer that reads it: empty unless digest and
  // generation are those of the committed slot at that offset. Touches it.
  PinnedPage pin_record(uint64_t offset, const Digest& digest, Generation generation);
  void unpin(std::span<const PinnedPage> pages);
  // Presence only. out[i] = 1 if committed here. Refreshes recency like pin.
  void contains(std::span<const Digest> digests, bool touch, std::span<uint8_t> out);

  // --- removal ------------------------------------------------------------------------
  // Withdrawn rows of what was held are appended to `rows`.
  size_t remove(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  // Drops the committed pages of a namespace slot, at most `limit` a call; returns how many.
  size_t sweep_namespace(uint32_t namespace_slot, size_t limit, std::vector<RecordRow>& rows);
  // Eviction on an operator's word, through the sink as any other: of these pages, or of the
  // coldest ones up to the first that makes it `bytes` (of payload). What is pinned stays.
  Evicted evict(std::span<const Digest> digests);
  Evicted evict_coldest(uint64_t bytes);

  // --- quotas (pool/quota.h) -----------------------------------------------------------
  // Of a namespace slot; what is held beyond it goes when the next page is set.
  void set_quota(uint32_t namespace_slot, uint64_t bytes);
  void drop_quota(uint32_t namespace_slot);
  NamespaceUse use_of(uint32_t namespace_slot) const;

  // --- directory -----------------------------------------------------------------------
  // Calls `visit` with batches of rows of all committed pages, unlocking in between. A page
  // committed or dropped meanwhile may or may not be seen; `as_of` is a generation such that
  // every change above it may be missing.
  Generation scan(const std::function<void(std::span<const RecordRow>)>& visit) const;
  Generation next_generation();  // also used to order withdrawals

  // --- drain ---------------------------------------------------------------------------
  // The committed pages, most recently used first, as far as their payloads fit into `bytes_max`.
  // Others than the pages that are used while it looks keep their order.
  std::vector<WarmPage> warmest(uint64_t bytes_max) const;
  // Whether pages of so many bytes, used that long ago, belong here: there is room, or eviction
  // would take a page first that nobody has used for longer.
  bool wants(uint64_t bytes, uint32_t idle_ms) const;

  // --- warm restart
  const RecoveryReport& recovery() const;
  // In the file, if there is one: all removals until then are known to who judges it
  // (PoolFileConfig).
  void note_removals(const TierNote& note);
  // Writes down how recently each page was used, for the next process; without it that is the
  // order in which they were set. At a clean stop.
  void remember_order();

  PoolStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
