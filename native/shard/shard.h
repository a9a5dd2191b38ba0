// The directory shard: digest -> where the page is. Any number of holders; a lookup gives 3 of
// them.
//
// Divided into pieces of equal hash range (piece.h); a piece is an array of records and an index of
// buckets, each with a version that is odd while it or a record of it changes, so that readers need
// no lock and a later version can be read one-sidedly. Each record costs at most 48 bytes all in,
// from some 250 000 records on (those of a digest's fourth and further holders about 100). The
// table grows piece by piece, large pieces ahead of need in sweep(): no insert waits for more than
// one piece. At `capacity_entries` further records are refused and counted.
//
// Updates are conditional. A row is taken only from its own holder and only with a
// generation above the one stored for (digest, holder); a withdrawal removes a record whose
// generation is not above its own. Dropping a holder is O(1): its records stop counting at
// once and are swept later; its index is given out again only after the sweep.
//
// A row that cannot be stored as it is counts as bad: its holder is not live, its offset is no
// multiple of 64 or beyond 16 TiB, its length is 0 or above kPageBytesMax, its generation needs
// more than 48 bits, or it has unknown flags.
//
// Thread safe: any number of readers, writers serialise per piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/summary.h"
#include "common/types.h"
#include "shard/ring.h"

namespace peercached {

inline constexpr unsigned kHoldersPerDigestMax = 3;

// What became of the rows; each counts once.
struct ShardApplied {
  uint32_t added = 0, changed = 0, withdrawn = 0;
  uint32_t old = 0;   // not newer than what is stored; or withdrawn and not there
  uint32_t full = 0;  // no room in the table
  uint32_t bad = 0;   // cannot be stored: see above
};

struct ShardStats {
  uint64_t entries = 0, dead_entries = 0, capacity_entries = 0;
  uint64_t bytes = 0, index_bytes = 0;  // of memory: all, and that for finding records
  uint64_t added = 0, changed = 0, withdrawn = 0, old = 0, full = 0, bad = 0;
  uint64_t lookups = 0, hits = 0;  // digests asked for, and found
};

class Shard {
 public:
  // Throws std::invalid_argument for a capacity of 0 or above kCapacityEntriesMax. `on_untidy` is
  // called, on whichever thread, when there is something for sweep() to do.
  explicit Shard(uint64_t capacity_entries, std::function<void()> on_untidy = {});
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  static constexpr uint64_t kCapacityEntriesMax = uint64_t{1} << 32;

  // Holder indices are given by the caller (the engine's node table). add_holder makes an index
  // live and empty; it must not be in use (std::invalid_argument): see swept().
  void add_holder(HolderIndex holder);
  void drop_holder(HolderIndex holder);  // O(1)
  bool swept(HolderIndex holder) const;  // not live, and no record of it is left
  // Removes dead records, and makes room in pieces that are filling up, so that updates need not
  // wait for that; returns about how many records are left to visit.
  size_t sweep(size_t records_max);

  // `holder` of each row is ignored.
  ShardApplied apply(HolderIndex holder, std::span<const RecordRow> rows);

  // Appends live records of each digest, 3 at most, in the order of the digests; rows of one digest
  // are adjacent. Digests without records add nothing.
  void lookup(std::span<const Digest> digests, std::vector<RecordRow>& out) const;

  // Out with their records, whoever holds them. Who adds more meanwhile has to take them back.
  void forget(std::span<const Digest> digests);

  // Resync: what this shard holds of `holder`, restricted to digests that `self` owns in
  // `ring`, by bucket (kSummaryBuckets).
  void summary(HolderIndex holder, const Ring& ring, HolderIndex self,
               std::span<BucketSummary> out) const;
  // Makes the records of `holder` in `bucket` (so restricted) those in `rows`: what is stored with
  // a generation <= as_of gives way to the rows, newer records stay unless a row is newer still.
  // Rows of other buckets, and withdrawals, are bad.
  ShardApplied replace(HolderIndex holder, unsigned bucket, Generation as_of, const Ring& ring,
                       HolderIndex self, std::span<const RecordRow> rows);
  // Forgets records of digests that `self` does not own in `ring` (after a view change); returns
  // how many.
  size_t trim(const Ring& ring, HolderIndex self);

  ShardStats stats() const;

 private:
  friend class PieceOrder;

  // lookup() that is not counted as one; how many of the digests have records.
  uint64_t find(std::span<const Digest> digests, std::vector<RecordRow>& out) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
