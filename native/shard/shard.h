// The directory shard: digest -> where the page is. A digest may have any number of holders; a
// lookup returns at most 3 of them.
//
// The table is divided into pieces of equal hash range (piece.h): an array of records and an index
// of buckets. Each bucket has a version that is odd while it or one of its records changes. So
// readers need no lock, and a later version can be read one-sidedly. From about 250 000 records on,
// each record costs at most 48 bytes in all (about 100 for fourth and further holders of a digest).
// The table grows piece by piece; sweep() grows large pieces ahead of need. So an insert waits for
// at most one piece. At `capacity_entries` further records are refused and counted.
//
// Updates are conditional. A row is accepted only from its own holder, and only with a generation
// above the one stored for (digest, holder). A withdrawal removes a record with a generation not
// above its own. Dropping a holder is O(1): its records stop counting at once and are swept later.
// Its index may be reused only after the sweep.
//
// A row counts as bad if one of these is true: its holder is not live. Its offset is not a multiple
// of 64, or is beyond 16 TiB. Its length is 0 or above kPageBytesMax. Its generation needs more
// than 48 bits. It has unknown flags.
//
// Thread safe: any number of readers; writers serialise per piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/types.h"

namespace peercached {

inline constexpr unsigned kHoldersPerDigestMax = 3;

// Outcome of an update; each row counts once.
struct ShardApplied {
  uint32_t added = 0, changed = 0, withdrawn = 0;
  uint32_t old = 0;   // not newer than the stored record, or withdrawn but not stored
  uint32_t full = 0;  // no room in the table
  uint32_t bad = 0;   // cannot be stored: see above
};

struct ShardStats {
  uint64_t entries = 0, dead_entries = 0, capacity_entries = 0;
  uint64_t bytes = 0, index_bytes = 0;  // of memory: in total, and for the index
  uint64_t added = 0, changed = 0, withdrawn = 0, old = 0, full = 0, bad = 0;
  uint64_t lookups = 0, hits = 0;  // digests looked up, and found
};

class Shard {
 public:
  // Throws std::invalid_argument for a capacity of 0 or above kCapacityEntriesMax. `on_untidy` is
  // called, on any thread, when sweep() has work to do.
  explicit Shard(uint64_t capacity_entries, std::function<void()> on_untidy = {});
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  static constexpr uint64_t kCapacityEntriesMax = uint64_t{1} << 32;

  // The caller (the engine's node table) assigns holder indices. add_holder() makes an index live
  // and empty. Throws std::invalid_argument while the index is in use: see swept().
  void add_holder(HolderIndex holder);
  void drop_holder(HolderIndex holder);  // O(1)
  // False: it was dropped, or one of its records found no place when the table changed its size,
  // which ends all records of its holder. Drop it then, too.
  bool live(HolderIndex holder) const;
  bool swept(HolderIndex holder) const;  // not live, and it has no records left
  // Removes dead records and makes room in pieces that are filling up, so that updates need not
  // wait. Returns about how many records are left to visit.
  size_t sweep(size_t records_max);

  // Ignores `holder` of the rows.
  ShardApplied apply(HolderIndex holder, std::span<const RecordRow> rows);

  // Appends up to 3 live records of each digest, in the order of the digests. Digests without
  // records add nothing.
  void lookup(std::span<const Digest> digests, std::vector<RecordRow>& out) const;

  // As lookup(), with the records of all holders, and not counted. Slower for pages with more than
  // 3 holders.
  void lookup_all(std::span<const Digest> digests, std::vector<RecordRow>& out) const;

  ShardStats stats() const;

 private:
  friend class PieceOrder;

  // lookup() without counting it; returns how many of the digests have records.
  uint64_t find(std::span<const Digest> digests, std::vector<RecordRow>& out) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
