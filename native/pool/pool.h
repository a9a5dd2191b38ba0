// The published pool: memory of this daemon. Peers READ pages from it.
//
//   pool  = units of 4 KiB
//   span  = a run of units given to one size class, sized so that its tail waste stays small
//   class = one slot stride: 64-byte header + payload, the payload rounded up to 4 KiB
//   slot  = the place of one page
//
// Life of a slot:   free -> reserved -> committed -> (evicted | removed) -> free
//
// find, pin, scans and summaries do not see a reserved slot. A slot that leaves `committed` first
// invalidates its header (release order), and only then may the payload change. Remote readers rely
// on this order (slot_header.h). A pinned slot is never evicted. If it is removed, it becomes
// invisible at once, and its last unpin frees it.
//
// Eviction is least-recently-used over the whole pool, across classes. It drops the tail of a chain
// before its head: within a batch the first key is the most recent. A batch that continues a chain
// is placed just behind its parent.
//
// Thread safe. Each public call takes the pool's single mutex at most once per batch (a scan: once
// per 1024 slots). Page bytes are never touched under it. All operations are O(1) per page, except
// finding a run of units for a new span.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "pool/evicted_keys.h"
#include "pool/pool_file.h"
#include "pool/recovery.h"

namespace peercached {

struct PoolConfig {
  uint64_t size_bytes = 0;  // rounded down to units; at least 1 MiB
  Incarnation incarnation = 0;
  uint64_t first_bytes = 1ULL << 30;  // ready at start; the rest joins by touch_more()
  bool huge_pages = false;            // MFD_HUGETLB; fails if there are too few, never falls back
  double high_watermark = 0.98;       // background eviction starts at this used fraction
  double low_watermark = 0.96;        // and stops at this one
  PoolFileConfig file;                // keeps the pool across restarts; by default no file
  // Only for a pool in a file. Each page is stored with the position of the newest removal. After a
  // restart `is_void` says whether the page was removed since then.
  std::function<Position()> position;
  std::function<bool(const Digest&, Position set_at)> is_void;
};

// The namespace of a page. `slot` is this process's number for one epoch of one namespace;
// sweep_namespace() takes it. A pool in a file stores `id` and `epoch` with the page. A page
// without an id ends with the process.
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
  uint32_t slot = UINT32_MAX;   // handle for unpin; UINT32_MAX: no page
  uint32_t length = 0;
  uint64_t checksum = 0;
  Born born = 0;  // of a reserved page only, for commit()
  std::byte* payload() const { return header + sizeof(SlotHeader); }
  // Of a committed page.
  Born born_of() const {
    SlotHeader copy;
    std::memcpy(&copy, header, sizeof copy);
    return copy.born;
  }
  explicit operator bool() const { return slot != UINT32_MAX; }
};

// A page that Pool::keep() keeps from eviction.
struct KeptPage {
  Digest digest;
  Generation generation = 0;  // 0: it is not here
  uint32_t length = 0;
  uint32_t namespace_slot = 0;
  explicit operator bool() const { return generation != 0; }
};

// Whether a page of the same key with another length is dropped: by a set, not by a copy of a page
// that was set earlier.
enum class Replace : uint8_t { yes, no };

// A page in the result of hottest().
struct HotPage {
  Digest digest;
  uint32_t length = 0;
  uint32_t namespace_slot = 0;
  uint32_t reads = 0;    // lately (reads.h), by workers here and by peers
  uint32_t idle_ms = 0;  // since its last use
};

enum class ReserveOutcome : uint8_t {
  reserved,   // fill the payload, then commit or abort
  present,    // already committed here with this length; pinned for the caller
  busy,       // another thread has it reserved, or it is pinned with another length: call
              // wait_settled and wait_replaceable, then retry
  newer,      // Replace::no, and the pool has a page of this key with another length
  no_space,   // nothing more can be evicted
  too_large,  // larger than the pool
};

struct Reservation {
  ReserveOutcome outcome = ReserveOutcome::no_space;
  PinnedPage page;  // reserved: where to write; present: the page
};

struct PageRequest {
  Digest digest;
  uint32_t length = 0;
};

// One page in the result of warmest() and coldest().
struct IdlePage {
  RecordRow row;
  uint32_t namespace_slot = 0;
  uint32_t idle_ms = 0;  // since its last use
  uint64_t stamp = 0;    // greater: worth more (recency.h)
  uint8_t moves = 0;     // from pool to pool, since its last use
};

// The place of a peer's page in our eviction order.
struct Adoption {
  uint32_t idle_ms = 0;  // since its last use
  uint8_t moves = 0;     // from pool to pool, since its last use
  bool replica = false;  // the peer's pool keeps it
  bool ahead = false;    // nobody has asked for it: one of the first to go until it is used
};

struct PoolRoom {
  uint64_t free_bytes = 0;       // until eviction stops
  uint32_t coldest_idle_ms = 0;  // since the last use of any page that eviction takes next

  // Whether to take pages of this size, last used `idle_ms` ago: there is room, or the pages that
  // must go have been idle `times` as long.
  bool fits(uint64_t bytes, uint32_t idle_ms, double times = 1.0) const {
    return bytes <= free_bytes || coldest_idle_ms > idle_ms * times;
  }
};

// Counters since the start, and what is left.
struct PoolFilling {
  uint64_t set_bytes = 0;   // of pages that workers set
  uint64_t free_bytes = 0;  // until eviction starts
  uint64_t lost_bytes = 0;  // of pages that were evicted, and that no other pool was known to have
};

struct Evicted {
  uint64_t pages = 0;
  uint64_t bytes = 0;  // of payload
};

// Use of the pool by one namespace, and the effects of its quota.
struct NamespaceUse {
  uint64_t keys = 0;   // committed pages
  uint64_t bytes = 0;  // stride bytes of its slots, headers included
  uint64_t quota_bytes = UINT64_MAX;
  uint64_t evictions = 0, refused = 0;
  uint64_t hinted_bytes = 0, retained_bytes = 0;  // of payload; see "hints" below
};

struct PoolStats {
  uint64_t capacity_bytes = 0;  // of all units
  uint64_t ready_bytes = 0;     // of these, see "growth"
  std::string why_small;        // why no more of them will be
  uint64_t used_bytes = 0;      // stride bytes of all slots that are not free
  uint64_t payload_bytes = 0;   // of committed pages
  uint64_t keys = 0;            // committed pages
  struct Count {
    uint64_t keys = 0, bytes = 0;
  };
  Count moved, replicas;   // of the committed pages, those that came from other pools (slot.h)
  Count hinted, retained;  // of the committed pages, see "hints" below
  uint64_t ahead = 0, ahead_used = 0;  // pages that came with Adoption::ahead; were used then
  uint64_t reserved = 0, pins = 0;
  uint64_t sets = 0, span_moves = 0, no_space = 0;
  uint64_t evictions = 0, removals = 0, given = 0;  // each page that left, once
  uint64_t set_bytes = 0, lost_bytes = 0;           // see PoolFilling
  struct Class {
    uint64_t stride_bytes, slots, used, spans, evictions;
    uint64_t pinned;  // slots that eviction cannot take now: pinned or reserved
  };
  std::vector<Class> classes;
};

class Pool {
 public:
  using RemovalJudge = std::function<bool(const Digest&, Position set_at)>;
  // Receives evicted pages in batches, on the thread that evicted them, without the pool's mutex.
  // The rows have kRecordWithdraw set and a fresh generation.
  // `uses` of evicted ones says how often they were read.
  using EvictSink = std::function<void(std::span<const RecordRow>)>;
  // Receives each namespace found in the file once and fills in its `slot`; 0 means its pages must
  // not be served. The constructor calls it once.
  using NamespaceJudge = std::function<void(std::span<PageNamespace>)>;

  // Maps and prefaults the memory, then recovers pages from the file. Recovered pages are committed
  // under this incarnation, in their former recency order. Throws std::runtime_error
  // with the value and the remedy if there is not enough memory.
  Pool(const PoolConfig& config, EvictSink on_evict, NamespaceJudge judge = nullptr);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::byte* base() const;
  uint64_t size_bytes() const;

  // --- growth: memory joins the pool part by part, as it is touched -------------------
  // From the base on, what is in the pool.
  uint64_t ready_bytes() const;
  // Touches the next part and says where it ends; nothing if all is touched. Throws
  // std::runtime_error if the memory cannot be had. For one thread.
  std::optional<uint64_t> touch_more();
  // The pool has these first `bytes` from now on; they are touched. While it grows, sets wait for
  // memory a short time before they evict pages.
  void grow_to(uint64_t bytes);
  void stop_growing(std::string why);  // it stays as large as it is

  // --- set ---------------------------------------------------------------------------
  // Fills one Reservation per request, in order. `parent`: the key just before the first request's
  // key in the chain, or nullptr. If background eviction could not keep up, evicts pages in this
  // call. If the pool holds a page of the same key with another length, drops it and reserves a new
  // slot, with Replace::yes (but while the old page is pinned, the outcome is `busy`). The sink
  // gets the withdrawals of all pages that were evicted or dropped.
  void reserve(std::span<const PageRequest> requests, const Digest* parent, const PageNamespace& ns,
               std::span<Reservation> out, Replace replace = Replace::yes);
  // `checksum` and `born` must be set. Writes the header last, in release order, and fills rows[i]
  // with the record to publish. The slots stay pinned for the caller, so that no withdrawal can
  // overtake the publication. Give `idle_ms` if the pages were last used elsewhere, that long ago;
  // without it they count as used now. `elsewhere` may be empty; elsewhere[i] is 1 if another pool
  // has the page, too. Then our copy goes soon, unless it is used here.
  void commit(std::span<const PinnedPage> pages, std::span<RecordRow> rows,
              const std::optional<Adoption>& adoption = {},
              std::span<const uint8_t> elsewhere = {});
  void abort(std::span<const PinnedPage> pages);
  // Pinned pages that were read before they came here, from a disk or another pool: how often.
  void set_uses(std::span<const PinnedPage> pages, std::span<const uint8_t> uses);
  // For slots that somebody still holds (held_slots.h): aborts reserved ones, unpins pages.
  void give_back(std::span<const PinnedPage> slots);
  // Waits until no thread has `digest` reserved; false at the deadline.
  bool wait_settled(const Digest& digest, Deadline deadline);
  // Waits until no page of `digest` with another length is pinned; false at the deadline.
  bool wait_replaceable(const Digest& digest, uint32_t length, Deadline deadline);

  // The records of pinned, committed pages, for publishing again.
  void rows_of(std::span<const PinnedPage> pages, std::span<RecordRow> rows) const;
  // Appends withdrawals of pinned pages that were removed since they were pinned, the same ones as
  // remove() gave. A publisher sends them after the page's record, because the remover's withdrawal
  // may have arrived before it. Owners keep no tombstones, so the record would stay.
  void withdrawals_of(std::span<const PinnedPage> pages, std::vector<RecordRow>& rows) const;

  // --- get ---------------------------------------------------------------------------
  // Pins committed pages; gives an empty PinnedPage for the others. `touch` refreshes recency, the
  // first key as the most recent.
  void pin(std::span<const Digest> digests, const Digest* parent, bool touch,
           std::span<PinnedPage> out);
  // Pins and touches pages that a peer reads. Gives an empty page unless the slot at that offset is
  // committed with this digest, generation and length: the reader lays out the answer by its own
  // lengths.
  void pin_records(std::span<const PageWanted> wanted, std::span<PinnedPage> out);
  void unpin(std::span<const PinnedPage> pages);
  // Tests presence only: out[i] = 1 if committed here. `touch` refreshes recency as in pin.
  // `read`: peers have read these pages.
  void contains(std::span<const Digest> digests, bool touch, std::span<uint8_t> out,
                bool read = false);

  // out[i]: the length of the page if it is committed here, else 0. Recency stays.
  void lengths(std::span<const Digest> digests, std::span<uint32_t> out) const;

  // --- pages kept for a while (engine/storage/holds.h) ------------------------------------------
  // Keeps committed pages from eviction until release(), as pins do, and uses them. A page has at
  // most one keep. Unlike a pin, a keep holds up nobody: it ends when the page is removed or gets
  // another length. out[i] is empty for a page that is not here. `unless_leaving`: also for a page
  // after give_away().
  void keep(std::span<const Digest> digests, std::span<KeptPage> out, bool unless_leaving = false);
  void release(std::span<const KeptPage> pages);
  // The keeps that have ended by themselves since the last call.
  std::vector<KeptPage> take_ended();
  // The pages read most lately, at most `limit` of them. `namespace_slot` 0: of all namespaces.
  std::vector<HotPage> hottest(size_t limit, uint32_t namespace_slot = 0) const;

  // --- removal ------------------------------------------------------------------------
  // Appends the withdrawals of the removed pages to `rows`.
  size_t remove(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  // The same for the pages of these records; not for pages set later under the same keys.
  void drop_given(std::span<const RecordRow> records, std::vector<RecordRow>& rows);
  // Drops at most `limit` committed pages of a namespace slot; returns how many it dropped.
  size_t sweep_namespace(uint32_t namespace_slot, size_t limit, std::vector<RecordRow>& rows);
  // Eviction requested by an operator, reported to the sink as usual. Takes these pages, or the
  // coldest ones up to at least `bytes` of payload. Pinned pages stay.
  Evicted evict(std::span<const Digest> digests);
  Evicted evict_coldest(uint64_t bytes);

  // Pages that were evicted lately because there was no room.
  const EvictedKeys& evicted() const;

  // --- hints (hinted.cc) -----------------------------------------------------------------
  // Each takes pages of one namespace. A page of another one counts as not here.
  // These pages were just brought here by a hint. Until somebody uses them, they are among the
  // first to go.
  void set_hinted(uint32_t namespace_slot, std::span<const Digest> digests);
  // Eviction takes other pages first, until unretain(). `bytes_max`: of all retained pages, and of
  // those of this namespace. Statuses: ok, absent, or no_space beyond a bound. pages[i] is for
  // unretain(); without a generation if it is not retained.
  void retain(uint32_t namespace_slot, std::span<const Digest> digests, uint64_t bytes_max,
              uint64_t namespace_bytes_max, std::span<PageStatus> statuses,
              std::span<KeptPage> pages);
  // Pages that were set anew since are left alone.
  void unretain(std::span<const KeptPage> pages);
  // They are retained no more, and the first to go, unless they are pinned. Statuses: ok or absent.
  void first_to_go(uint32_t namespace_slot, std::span<const Digest> digests,
                   std::span<PageStatus> statuses);

  // --- quotas (pool/quota.h) -----------------------------------------------------------
  // Sets the quota of a namespace slot. The next page set evicts pages beyond it.
  void set_quota(uint32_t namespace_slot, uint64_t bytes);
  void drop_quota(uint32_t namespace_slot);
  NamespaceUse use_of(uint32_t namespace_slot) const;

  // --- directory -----------------------------------------------------------------------
  // Scans all committed pages, in parts: appends the rows of the next slots, from `slot` on, and
  // moves `slot` behind them. False: those were the last. The scan may miss or include a page
  // committed or dropped since its first part.
  bool scan(uint32_t& slot, std::vector<RecordRow>& rows) const;
  Generation next_generation();  // also used to order withdrawals

  // --- pages that move to other pools ------------------------------------------------
  // The committed pages, most recently used first, as many as fit into `bytes_max` of payload.
  // Order is stable except for pages touched during the scan.
  std::vector<IdlePage> warmest(uint64_t bytes_max) const;
  PoolFilling filling() const;
  // The pages that eviction takes while `bytes` more are set, at most 4096 of them. Not those that
  // are pinned, have moved `moves_max` times, or move elsewhere.
  std::vector<IdlePage> coldest(uint64_t bytes, uint8_t moves_max) const;
  // The same, but those that were read at least `reads_min` times here, in the order of their
  // chains. Also those that have moved often.
  std::vector<IdlePage> coldest_read(uint64_t bytes, uint8_t reads_min) const;
  // The committed pages that were read at least `reads_min` times here, most recently used first.
  // Not those that another pool takes or has.
  std::vector<IdlePage> warmest_read(uint8_t reads_min) const;
  // The same for these pages, without those that are not here or were given away.
  std::vector<IdlePage> idle_pages(std::span<const Digest> digests) const;
  // Sets how often these pages have moved, or kMovesElsewhere, until they are used here again.
  // While a page moves elsewhere, a READ by a peer does not count as use.
  void set_moves(std::span<const Digest> digests, uint8_t moves);
  // Call these around an offer to a peer that lets us drop the pages. Meanwhile keeps() says that
  // they leave, even if they are used. Otherwise two nodes could offer each other the same page,
  // and both drop it. Eviction spares them, up to a quarter of the pool, so that the peer can read
  // them.
  void begin_offer(std::span<const RecordRow> records);
  void end_offer(std::span<const RecordRow> records);
  // A peer has taken these pages. Appends their withdrawals to `rows`. They stay readable until
  // drop_given(), but nobody can rely on them any more: eviction takes them first. `unless_kept`:
  // pages with a keep stay.
  void give_away(std::span<const RecordRow> records, bool unless_kept,
                 std::vector<RecordRow>& rows);
  // states[i] says whether this page of a peer is here, and stays. Pages that stay are used now.
  enum class Here : uint8_t {
    no,
    yes,
    leaves,  // it moves elsewhere, or has another length
  };
  void keeps(std::span<const RecordRow> pages, std::span<Here> states);
  // The pool's room for so many bytes of peers' pages.
  PoolRoom room(uint64_t bytes = 1) const;
  PoolStats::Count replicas() const;

  // --- warm restart
  const RecoveryReport& recovery() const;
  // Stores in the pool file, if any, that all removals up to `note` are known to the removal judge
  // (see PoolFileConfig).
  void note_removals(const TierNote& note);
  // Stores each page's recency for the next process; call it at a clean stop. Without it the next
  // process orders pages by when they were set.
  void remember_order();

  PoolStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
