// One piece of the directory table: a separate hash table for at most 1/256 of the digests.
//
// Records lie in cells (cells.h) in arrival order. An index of buckets (bucket.h) finds them by
// open addressing. So records are written sequentially, and each access touches only one random
// cache line of the index. Growing rebuilds only the index, an eighth of the table.
//
// A digest's hash gives its home bucket. If that is full, the entry goes into the first bucket with
// room along the digest's probe sequence. Every full bucket it passed counts it. Entries and
// records move only in a rebuild, with `version` odd so that readers wait. A rebuild takes well
// under a millisecond; that bound is why there are pieces at all.
//
// Index sizes follow a geometric series, with a different phase in each piece. With equal phases
// all pieces would grow at the same moment. The bytes per record of the whole table would then
// swing between the best and the worst case.
//
// Readers (read, prefetch) need no lock. Everything else needs `mutex`; read_all() takes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "common/mutex.h"
#include "common/types.h"
#include "shard/bucket.h"
#include "shard/cells.h"
#include "shard/further_holders.h"
#include "shard/holder_table.h"
#include "shard/shard.h"

namespace peercached {

// Position of an index entry.
struct Place {
  uint32_t bucket;
  uint32_t slot;

  static Place none() { return {0, kBucketSlots}; }
  explicit operator bool() const { return slot < kBucketSlots; }
};

class alignas(64) Piece {
 public:
  // Index sizes are multiples of this.
  static constexpr uint32_t kBucketsStep = 8;
  // With half of the buckets full, one record in 2^64 finds none of these free.
  static constexpr uint32_t kProbeBuckets = 64;

  // buckets_for_capacity(): buckets to reserve for a piece of up to `records`. The others: memory
  // for these buckets, and for the cells they can name, in whole pages.
  static uint32_t buckets_for_capacity(uint64_t records);
  static size_t index_bytes_for(uint32_t buckets);
  static size_t cell_bytes_for(uint32_t buckets) {
    return Cells::bytes_for(buckets * kBucketSlots);
  }

  // `index` and `cells` are zeroed memory for `buckets_max`; `phase` in [0, 1).
  void place(Bucket* index, uint32_t buckets_max, std::byte* cells, float phase);

  mutable Mutex mutex;

  // --- readers
  // Two prefetch steps for batches: first the home bucket, then the record. Only hints.
  Bucket* home(const Digest& digest) const { return index_ + home_of(digest, buckets()); }
  void prefetch_record(const Digest& digest) const;
  // Writes the live records of the digest; returns how many.
  unsigned read(const Digest& digest, const HolderTable& holders,
                RecordRow out[kHoldersPerDigestMax]) const;
  // Appends the live records of all holders. Takes the mutex.
  void read_all(const Digest& digest, const HolderTable& holders,
                std::vector<RecordRow>& out) const;
  uint32_t buckets() const { return buckets_.load(std::memory_order_acquire); }

  // --- writers
  uint32_t used() const REQUIRES(mutex) { return used_; }
  // Prefetches the cell of the next new record. Always inline: GCC considers a function that only
  // prefetches free of effects and drops calls to it.
  [[gnu::always_inline]] void prefetch_free_cell() const { cells_.prefetch(cells_.next()); }
  // Calls visit(Place, const PackedRecord&) for each record of the digest, dead ones included.
  // Returns the first free slot in its probe sequence, or none.
  template <typename Visit>
  Place for_each_of(const Digest& digest, Visit&& visit) const REQUIRES(mutex);
  // All records lie in cells below this.
  uint32_t cells_end() const { return cells_.end(); }
  size_t index_bytes() const { return index_bytes_for(buckets()); }
  size_t bytes() const { return index_bytes() + cells_.bytes() + further_.bytes(); }
  // Calls visit(cell, const Digest&, const PackedRecord&) for each record in these cells; it may
  // remove that record. `low_byte` is that of the piece's digests.
  template <typename Visit>
  void for_each(uint32_t cell_first, uint32_t cell_end, unsigned low_byte, Visit&& visit) const
      REQUIRES(mutex);
  // For a record that for_each() visits.
  Place place_of(uint32_t cell, const PackedRecord& record) const REQUIRES(mutex);

  // The first free entry in the digest's probe sequence. Removes a dead record if none is free.
  Place free_slot(const Digest& digest, HolderTable& holders) REQUIRES(mutex);
  // `place`: a free entry in the digest's probe sequence.
  void insert(Place place, const PackedRecord& record) REQUIRES(mutex);
  void overwrite(Place place, const PackedRecord& record) REQUIRES(mutex);
  // Removes a record. If the digest has further holders, one of them takes its place, and the
  // result is false. The caller accounts for the removed record.
  bool remove(Place place, HolderTable& holders) REQUIRES(mutex);
  FurtherHolders& further() REQUIRES(mutex) { return further_; }
  const FurtherHolders& further() const REQUIRES(mutex) { return further_; }

  // crowded(): grow before the next record. clustered(): grow after a record found no free slot
  // within reach, which happens by chance in a small piece. It requires a well-filled piece, so
  // that digests made to collide cannot force growth.
  bool crowded() const REQUIRES(mutex) {
    return used_ >= record_limit(buckets()) && buckets() < buckets_max_;
  }
  bool clustered() const REQUIRES(mutex) {
    return used_ >= record_limit(buckets()) / 4 * 3 && buckets() < buckets_max_;
  }
  // Rebuilds with room for one more record and `expected` after it. A live record that finds no
  // place again is lost (HolderTable::lose()), which only happens to digests made to collide.
  void grow(uint64_t expected, HolderTable& holders) REQUIRES(mutex);
  // Large pieces get room ahead of need. filling_up() says that one needs it soon, which starts a
  // sweep(). If could_use_room() is true, that sweep also serves the piece, to save a later one.
  bool filling_up() const REQUIRES(mutex) {
    return large() && (index_filling_up() || !cells_ready(1));
  }
  bool could_use_room() const REQUIRES(mutex) {
    return large() && (index_filling_up() || !cells_ready(3));
  }
  void make_room(HolderTable& holders) REQUIRES(mutex);
  // Rebuilds if far too large for its content.
  void shrink_if_sparse(HolderTable& holders) REQUIRES(mutex);

 private:
  static constexpr uint32_t kRecordsPerBucketMax = 13;  // load 0.93
  static constexpr double kGrowth = 2;

  bool large() const { return buckets() >= 16 * kBucketsStep; }
  bool index_filling_up() const REQUIRES(mutex) {
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

  // The buckets that may have a digest, its home first. Each digest has its own stride. With one
  // stride for all, full buckets would form runs, and records would end up ever further from home.
  // A stride that divides the way round comes home early, and goes on beside it. So a record of a
  // small piece finds a place as long as there is any.
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
      if (at_ == home_) at_ = home_ = home_ + 1 == buckets_ ? 0 : home_ + 1;
      done_ = ++steps_ == std::min(kProbeBuckets, buckets_);  // none may be visited twice
    }

   private:
    uint32_t buckets_, home_, at_, stride_, steps_ = 0;
    bool done_ = false;
  };

  int try_read(const Digest& digest, const HolderTable& holders,
               RecordRow out[kHoldersPerDigestMax], bool& dead_seen) const;
  void erase(Place place) REQUIRES(mutex);
  void add_overflow(Probe probe, uint32_t to, int step) REQUIRES(mutex);
  bool free_a_dead_slot(uint32_t bucket, HolderTable& holders) REQUIRES(mutex);
  uint32_t size_for(uint64_t records) const;
  void rebuild(uint32_t buckets, HolderTable& holders) REQUIRES(mutex);
  bool replace_dead(uint32_t cell, HolderIndex& holder, HolderTable& holders) REQUIRES(mutex);
  bool settle_in(uint64_t hi_above_low_byte, uint32_t entry, uint32_t buckets) REQUIRES(mutex);
  uint32_t cell_at(Place place) const {
    return BucketEntry::cell_of(load_relaxed(index_[place.bucket].entries[place.slot]));
  }

  Bucket* index_ = nullptr;
  Cells cells_;
  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t> buckets_{0};
  uint32_t buckets_max_ = 0;
  uint32_t used_ GUARDED_BY(mutex) = 0;
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
  // Count the overflow before writing the entry, so that no reader stops short of it.
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
