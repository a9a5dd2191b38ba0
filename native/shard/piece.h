// One piece of the directory table: a hash table of its own for 1/256 of the digests or less.
//
// The records lie in cells (cells.h), in the order in which they came; an index of buckets
// (bucket.h) finds them by open addressing. So a record is written in one go next to the one
// before it, one line of the index is all that is touched at random, and growing the table means
// rebuilding the index, an eighth of it.
//
// A digest's home is its hash's place in the index; a record that finds its home full has its entry
// in the first bucket with room along the digest's own probe sequence, and every full bucket it
// passed counts it. Entries and records never move but in a rebuild, with `version` odd so that
// readers wait; that takes well under a millisecond and is why there are pieces at all.
//
// Sizes of the index follow a geometric row whose phase differs from piece to piece. Were it the
// same for all, they would all grow at the same moment, and the table as a whole would swing
// between its least and its worst bytes per record.
//
// Readers (read, prefetch) need no lock. Everything else needs `mutex`.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>

#include "common/types.h"
#include "shard/bucket.h"
#include "shard/cells.h"
#include "shard/further_holders.h"
#include "shard/holder_table.h"
#include "shard/shard.h"

namespace peercached {

// An entry of the index.
struct Place {
  uint32_t bucket;
  uint32_t slot;

  static Place none() { return {0, kBucketSlots}; }
  explicit operator bool() const { return slot < kBucketSlots; }
};

class alignas(64) Piece {
 public:
  // Sizes of the index are multiples of it.
  static constexpr uint32_t kBucketsStep = 8;
  // With half of the buckets full, one record in 2^64 finds none of these free.
  static constexpr uint32_t kProbeBuckets = 64;

  // Buckets to set aside for a piece that must hold `records`; their memory in whole pages, and
  // that of the cells they can name.
  static uint32_t buckets_for_capacity(uint64_t records);
  static size_t index_bytes_for(uint32_t buckets);
  static size_t cell_bytes_for(uint32_t buckets) {
    return Cells::bytes_for(buckets * kBucketSlots);
  }

  // `index` and `cells` are zeroed memory for `buckets_max`; `phase` in [0, 1).
  void place(Bucket* index, uint32_t buckets_max, std::byte* cells, float phase);

  mutable std::mutex mutex;

  // --- readers
  // Two steps for batches: first the home bucket, then the record. Only hints.
  Bucket* home(const Digest& digest) const { return index_ + home_of(digest, buckets()); }
  void prefetch_record(const Digest& digest) const;
  // The live records of the digest; returns how many.
  unsigned read(const Digest& digest, const HolderTable& holders,
                RecordRow out[kHoldersPerDigestMax]) const;
  uint32_t buckets() const { return buckets_.load(std::memory_order_acquire); }

  // --- writers
  uint32_t used() const { return used_; }
  // Where the next record will be stored. Always inline: GCC takes a function that only prefetches
  // for one without effect, and drops calls.
  [[gnu::always_inline]] void prefetch_free_cell() const { cells_.prefetch(cells_.next()); }
  // visit(Place, const PackedRecord&) for each record of the digest, dead ones too. Returns the
  // first free slot on the digest's way, or none.
  template <typename Visit>
  Place for_each_of(const Digest& digest, Visit&& visit) const;
  // All its records lie in cells below.
  uint32_t cells_end() const { return cells_.end(); }
  size_t index_bytes() const { return index_bytes_for(buckets()); }
  size_t bytes() const { return index_bytes() + cells_.bytes() + further_.bytes(); }
  // visit(cell, const Digest&, const PackedRecord&) for each record in these cells; it may remove
  // that record. `low_byte` is that of the piece's digests.
  template <typename Visit>
  void for_each(uint32_t cell_first, uint32_t cell_end, unsigned low_byte, Visit&& visit) const;
  // Of a record that for_each() visits.
  Place place_of(uint32_t cell, const PackedRecord& record) const;

  // The first entry on the digest's way that is free, or is made so: a dead record goes.
  Place free_slot(const Digest& digest, HolderTable& holders);
  // `place`: a free entry on the digest's way.
  void insert(Place place, const PackedRecord& record);
  void overwrite(Place place, const PackedRecord& record);
  // Gives its place to one of the digest's further holders, if there are any; false if so. The
  // caller accounts for the one that goes.
  bool remove(Place place, HolderTable& holders);
  FurtherHolders& further() { return further_; }
  const FurtherHolders& further() const { return further_; }

  // Whether it should grow before the next record; or after one found no slot within reach, which
  // is chance in a small piece. (Digests made to collide get nowhere with this, for it takes a
  // well-filled piece.)
  bool crowded() const { return used_ >= record_limit(buckets()) && buckets() < buckets_max_; }
  bool clustered() const {
    return used_ >= record_limit(buckets()) / 4 * 3 && buckets() < buckets_max_;
  }
  // Rebuilds with room for one more record, and for those `expected` after it. Returns how many
  // records found no place again (0 but for digests made to collide); they are gone and accounted
  // for.
  uint32_t grow(uint64_t expected, HolderTable& holders);
  // Large pieces had better be given room before they need it. Whether it is one that will before
  // long, or that it pays to visit with those; and making it, likewise.
  bool filling_up() const { return large() && (index_filling_up() || !cells_ready(1)); }
  bool could_use_room() const { return large() && (index_filling_up() || !cells_ready(3)); }
  uint32_t make_room(HolderTable& holders);
  // Likewise, if far too large for what it holds.
  uint32_t shrink_if_sparse(HolderTable& holders);

 private:
  static constexpr uint32_t kRecordsPerBucketMax = 13;  // load 0.93
  static constexpr double kGrowth = 2;

  bool large() const { return buckets() >= 16 * kBucketsStep; }
  bool index_filling_up() const {
    const uint32_t limit = record_limit(buckets());
    return used_ >= limit - limit / 16 && buckets() < buckets_max_;
  }
  bool cells_ready(uint32_t sixty_fourths) const {
    return cells_.ready(cells_.end() / 64 * sixty_fourths);
  }
  static uint32_t record_limit(uint32_t buckets) { return buckets * kRecordsPerBucketMax; }
  static uint32_t home_of(const Digest& digest, uint32_t buckets) {
    return static_cast<uint32_t>((digest.hi >> 32) * buckets >> 32);
  }

  // The buckets in which a digest may be, its home first. The stride is the digest's own: with
  // one stride for all, full buckets would grow together into runs, and records end up ever
  // further from home. It is odd, so that in the smallest pieces it reaches every bucket.
  class Probe {
   public:
    Probe(uint64_t hi_above_low_byte, uint32_t buckets)
        : buckets_(buckets),
          home_(static_cast<uint32_t>((hi_above_low_byte >> 24) * buckets >> 32)),
          at_(home_),
          stride_(static_cast<uint32_t>((hi_above_low_byte & 0xffffffff) * (buckets / 2) >> 32) *
                      2 +
                  1) {}
    uint32_t at() const { return at_; }
    bool done() const { return done_; }
    void next() {
      at_ += stride_;
      if (at_ >= buckets_) at_ -= buckets_;
      // Back home: it has seen every bucket that the stride reaches, and must not see one twice.
      done_ = ++steps_ == kProbeBuckets || at_ == home_;
    }

   private:
    uint32_t buckets_, home_, at_, stride_, steps_ = 0;
    bool done_ = false;
  };

  int try_read(const Digest& digest, const HolderTable& holders,
               RecordRow out[kHoldersPerDigestMax], bool& dead_seen) const;
  void erase(Place place);
  void add_overflow(Probe probe, uint32_t to, int step);
  bool free_a_dead_slot(uint32_t bucket, HolderTable& holders);
  uint32_t size_for(uint64_t records) const;
  uint32_t rebuild(uint32_t buckets, HolderTable& holders);
  bool replace_dead(uint32_t cell, HolderIndex& holder, HolderTable& holders);
  bool settle_in(uint64_t hi_above_low_byte, uint32_t entry, uint32_t buckets);
  uint32_t cell_at(Place place) const {
    return BucketEntry::cell_of(load_relaxed(index_[place.bucket].entries[place.slot]));
  }

  Bucket* index_ = nullptr;
  Cells cells_;
  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t> buckets_{0};
  uint32_t buckets_max_ = 0;
  uint32_t used_ = 0;
  float phase_ = 0;
  FurtherHolders further_;
};

template <typename Visit>
Place Piece::for_each_of(const Digest& digest, Visit&& visit) const {
  Place free = Place::none();
  bool searching = true;
  const uint32_t count = buckets();
  for (Probe probe(digest.hi >> 8, count); !probe.done(); probe.next()) {
    Bucket& bucket = index_[probe.at()];
    const auto header = BucketHeader::of(load_relaxed(bucket.header));
    if (searching) {
      for (unsigned match = slots_matching_unordered(bucket, digest.lo, header.occupied);
           match != 0; match &= match - 1) {
        const auto slot = static_cast<uint32_t>(std::countr_zero(match));
        const Place place{probe.at(), slot};
        const PackedRecord record = cells_.load(cell_at(place));
        if (record.is_of(digest)) visit(place, record);
      }
    }
    if (!free && header.occupied != kAllSlots)
      free = Place{probe.at(), static_cast<uint32_t>(std::countr_one(header.occupied))};
    searching = searching && header.overflow != 0;
    if (!searching && free) break;
  }
  return free;
}

inline void Piece::insert(Place place, const PackedRecord& record) {
  // First the signs on the way, then the entry: a reader never stops short of it.
  add_overflow(Probe(record.hi_above_low_byte(), buckets()), place.bucket, 1);
  const uint32_t cell = cells_.take();
  cells_.store(cell, record);
  BucketChange(index_[place.bucket]).put(place.slot, BucketEntry::of(record.lo(), cell));
  ++used_;
}

inline void Piece::add_overflow(Probe probe, uint32_t to, int step) {
  for (; probe.at() != to; probe.next()) BucketChange(index_[probe.at()]).add_overflow(step);
}

template <typename Visit>
void Piece::for_each(uint32_t cell_first, uint32_t cell_end, unsigned low_byte,
                     Visit&& visit) const {
  for (uint32_t cell = cell_first; cell < cell_end; ++cell) {
    cells_.prefetch_after(cell);
    if (!cells_.in_use(cell)) continue;
    const PackedRecord record = cells_.load(cell);
    visit(cell, Digest{record.hi_above_low_byte() << 8 | low_byte, record.lo()}, record);
  }
}

}  // namespace peercached
