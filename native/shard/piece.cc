#include "shard/piece.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

namespace peercached {

uint32_t Piece::buckets_for_capacity(uint64_t records) {
  // Random digests spread over the pieces with a standard deviation of sqrt(records). Six
  // deviations of spare room are enough for every piece of a full table.
  const double most = static_cast<double>(records) + 6 * std::sqrt(records) + 1;
  return static_cast<uint32_t>(std::ceil(most / (kBucketsStep * 12))) * kBucketsStep;
}

size_t Piece::index_bytes_for(uint32_t buckets) {
  return (buckets * sizeof(Bucket) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void Piece::place(Bucket* index, uint32_t buckets_max, std::byte* cells, float phase) {
  index_ = index;
  cells_.place(cells, buckets_max * kBucketSlots);
  buckets_max_ = buckets_max;
  phase_ = phase;
  buckets_.store(kBucketsStep, std::memory_order_release);
}

// --- readers -------------------------------------------------------------------------------

void Piece::prefetch_record(const Digest& digest) const {
  Bucket* const home = this->home(digest);
  // Unordered loads suffice for a hint; read() checks again.
  const auto header = BucketHeader::of(load_relaxed(home->header));
  const unsigned match = slots_matching_unordered(*home, digest.lo, header.occupied);
  if (match == 0 && (header.overflow != 0 || header.occupied == kAllSlots)) {
    Probe probe(digest.hi >> 8, buckets());
    probe.next();
    __builtin_prefetch(index_ + probe.at());
  }
  if (match != 0)
    cells_.prefetch(BucketEntry::cell_of(load_relaxed(home->entries[std::countr_zero(match)])));
}

unsigned Piece::read(const Digest& digest, const HolderTable& holders,
                     RecordRow out[kHoldersPerDigestMax]) const {
  bool dead_seen = false;
  for (int attempt = 0; attempt < 64; ++attempt) {
    const int found = try_read(digest, holders, out, dead_seen);
    if (found > 0 || (found == 0 && !dead_seen)) return static_cast<unsigned>(found);
    // All seen are dead and not swept yet; one of the further holders may be live.
    if (found == 0) break;
    // A rebuild takes far longer than a change in place, and the writer may need this processor.
    if (attempt >= 4) std::this_thread::yield();
  }
  // Also reached after many writers in a row: wait for the mutex.
  MutexLock lock(mutex);
  const int found = try_read(digest, holders, out, dead_seen);
  if (found > 0) return static_cast<unsigned>(found);
  std::vector<RecordRow> further;
  further_.append(digest, holders, further);
  further.resize(std::min<size_t>(further.size(), kHoldersPerDigestMax));
  std::ranges::copy(further, out);
  return static_cast<unsigned>(further.size());
}

void Piece::read_all(const Digest& digest, const HolderTable& holders,
                     std::vector<RecordRow>& out) const {
  MutexLock lock(mutex);
  // There may be more than three in the table, where dead records were replaced.
  for_each_of(digest, [&](Place, const PackedRecord& record) {
    if (!holders.live(record.holder())) return;
    out.push_back(record.row());
    out.back().digest = digest;
  });
  further_.append(digest, holders, out);
}

// -1: a writer changed something it read.
int Piece::try_read(const Digest& digest, const HolderTable& holders,
                    RecordRow out[kHoldersPerDigestMax], bool& dead_seen) const {
  dead_seen = false;
  const uint32_t version = version_.load(std::memory_order_acquire);
  if (version & 1) return -1;
  const uint32_t count = buckets();
  unsigned found = 0;
  for (Probe probe(digest.hi >> 8, count); !probe.done(); probe.next()) {
    Bucket& bucket = index_[probe.at()];
    const uint64_t word = load_acquire(bucket.header);
    const auto header = BucketHeader::of(word);
    if (header.changing()) return -1;
    for (unsigned match = slots_matching(bucket, digest.lo, header.occupied); match != 0;
         match &= match - 1) {
      const uint32_t entry = load_acquire(bucket.entries[std::countr_zero(match)]);
      const PackedRecord record = cells_.load(BucketEntry::cell_of(entry));
      if (!record.is_of(digest)) continue;
      if (!holders.live(record.holder())) {
        dead_seen = true;
        continue;
      }
      // There may be more than three, where dead records were replaced.
      if (found == kHoldersPerDigestMax) break;
      out[found] = record.row();
      out[found].digest = digest;
      ++found;
    }
    if (load_relaxed(bucket.header) != word) return -1;
    if (header.overflow == 0) break;
  }
  return version_.load(std::memory_order_relaxed) == version ? static_cast<int>(found) : -1;
}

// --- writers -------------------------------------------------------------------------------

Place Piece::free_slot(const Digest& digest, HolderTable& holders) {
  for (Probe probe(digest.hi >> 8, buckets()); !probe.done(); probe.next()) {
    Bucket& bucket = index_[probe.at()];
    if (BucketHeader::of(load_relaxed(bucket.header)).occupied == kAllSlots &&
        !free_a_dead_slot(probe.at(), holders))
      continue;
    const unsigned occupied = BucketHeader::of(load_relaxed(bucket.header)).occupied;
    return Place{probe.at(), static_cast<uint32_t>(std::countr_one(occupied))};
  }
  return Place::none();
}

Place Piece::place_of(uint32_t cell, const PackedRecord& record) const {
  const uint32_t entry = BucketEntry::of(record.lo(), cell);
  for (Probe probe(record.hi_above_low_byte(), buckets()); !probe.done(); probe.next()) {
    Bucket& bucket = index_[probe.at()];
    const auto header = BucketHeader::of(load_relaxed(bucket.header));
    for (unsigned match = slots_matching_unordered(bucket, record.lo(), header.occupied);
         match != 0; match &= match - 1) {
      const auto slot = static_cast<uint32_t>(std::countr_zero(match));
      if (load_relaxed(bucket.entries[slot]) == entry) return {probe.at(), slot};
    }
  }
  return Place::none();
}

void Piece::overwrite(Place place, const PackedRecord& record) {
  const BucketChange change(index_[place.bucket]);
  cells_.store(cell_at(place), record);
}

bool Piece::remove(Place place, HolderTable& holders) {
  PackedRecord next;
  if (!further_.empty() && further_.take(cells_.load(cell_at(place)), holders, next)) {
    overwrite(place, next);
    return false;
  }
  erase(place);
  return true;
}

void Piece::erase(Place place) {
  const uint32_t cell = cell_at(place);
  const Probe probe(cells_.load(cell).hi_above_low_byte(), buckets());
  BucketChange(index_[place.bucket]).clear(place.slot);
  add_overflow(probe, place.bucket, -1);
  cells_.give_back(cell);
  --used_;
}

bool Piece::free_a_dead_slot(uint32_t bucket, HolderTable& holders) {
  if (holders.dead_records() == 0) return false;
  for (uint32_t slot = 0; slot < kBucketSlots; ++slot) {
    const HolderIndex holder = cells_.holder_of(cell_at({bucket, slot}));
    if (holders.live(holder)) continue;
    const bool freed = remove({bucket, slot}, holders);
    holders.removed(holder);
    if (freed) return true;
  }
  return false;
}

// --- size ----------------------------------------------------------------------------------

uint32_t Piece::size_for(uint64_t records) const {
  const double steps_least = static_cast<double>(records) / record_limit(kBucketsStep);
  double power = std::floor(std::log(std::max(steps_least, 1.0)) / std::log(kGrowth)) - 1;
  for (;; ++power) {
    const auto steps = static_cast<uint64_t>(std::round(std::pow(kGrowth, power + phase_)));
    const uint64_t buckets = steps * kBucketsStep;
    if (buckets >= buckets_max_) return buckets_max_;
    if (steps >= steps_least && steps >= 1) return static_cast<uint32_t>(buckets);
  }
}

void Piece::grow(uint64_t expected, HolderTable& holders) {
  uint64_t dead = 0;
  if (holders.dead_records() > 0)
    for_each(0, cells_.end(), 0, [&](uint32_t, const Digest&, const PackedRecord& record) {
      dead += !holders.live(record.holder());
    });
  // Leave spare room after removing the dead, so that it is not used up at once.
  const uint64_t live = used_ - dead;
  const uint64_t wanted = dead > 0 ? live + live / 16 + 1 : record_limit(buckets()) + 1;
  rebuild(size_for(std::max(wanted, live + expected + 1)), holders);
}

void Piece::make_room(HolderTable& holders) {
  if (index_filling_up()) grow(0, holders);
  cells_.make_ready(cells_.end() / 16);
}

void Piece::shrink_if_sparse(HolderTable& holders) {
  const uint32_t count = buckets();
  const bool gaps = cells_.bytes() > Cells::bytes_for(used_ + used_ / 2);
  const bool sparse = count > kBucketsStep && used_ <= record_limit(count) / 3;
  const uint32_t fitting = sparse ? std::min(count, size_for(used_ + used_ / 16 + 1)) : count;
  if (gaps || fitting < count) rebuild(fitting, holders);
}

void Piece::rebuild(uint32_t count, HolderTable& holders) {
  const uint32_t count_before = buckets();
  const size_t memory_before = index_bytes_for(count_before), memory_after = index_bytes_for(count);
  auto* const memory = reinterpret_cast<std::byte*>(index_);
  if (memory_after > memory_before)
    ReservedMemory::commit(memory + memory_before, memory_after - memory_before);

  const uint32_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  buckets_.store(count, std::memory_order_release);
  // A reader that finds `version_` odd or changed discards what it read and tries again. So the
  // buckets' own versions need not change.
  for (uint32_t at = 0; at < count; ++at) {
    const auto header = BucketHeader::of(load_relaxed(index_[at].header));
    store_release(index_[at].header, BucketHeader{header.version, 0, 0}.word());
  }
  uint32_t kept = 0;
  for (uint32_t cell = 0; cell < cells_.end(); ++cell) {
    cells_.prefetch_after(cell);
    if (!cells_.in_use(cell)) continue;
    HolderIndex holder = cells_.holder_of(cell);
    bool live = holders.live(holder);
    if (!live && !further_.empty()) live = replace_dead(cell, holder, holders);
    if (live && settle_in(cells_.hi_above_low_byte_of(cell),
                          BucketEntry::of(cells_.lo_low_of(cell), kept), count)) {
      if (cell != kept) cells_.store(kept, cells_.load(cell));
      ++kept;
    } else if (live) {
      further_.lose_all(cells_.load(cell), holders);
      holders.lose(holder);
    } else {
      holders.removed(holder);
    }
  }
  cells_.close_up(kept);
  used_ = kept;
  if (memory_after < memory_before)
    ReservedMemory::release(memory + memory_after, memory_before - memory_after);
  version_.store(version + 2, std::memory_order_release);
}

// Replaces the record by one of the digest's further holders; false if there is none.
bool Piece::replace_dead(uint32_t cell, HolderIndex& holder, HolderTable& holders) {
  PackedRecord next;
  if (!further_.take(cells_.load(cell), holders, next)) return false;
  cells_.store(cell, next);
  holders.removed(std::exchange(holder, next.holder()));
  return true;
}

bool Piece::settle_in(uint64_t hi_above_low_byte, uint32_t entry, uint32_t count) {
  for (Probe probe(hi_above_low_byte, count); !probe.done(); probe.next()) {
    Bucket& bucket = index_[probe.at()];
    auto header = BucketHeader::of(load_relaxed(bucket.header));
    const auto slot = static_cast<unsigned>(std::countr_one(header.occupied));
    if (slot == kBucketSlots) continue;
    store_release(bucket.entries[slot], entry);
    header.occupied |= static_cast<uint16_t>(1u << slot);
    store_release(bucket.header, header.word());
    for (Probe passed(hi_above_low_byte, count); passed.at() != probe.at(); passed.next()) {
      auto sign = BucketHeader::of(load_relaxed(index_[passed.at()].header));
      ++sign.overflow;
      store_release(index_[passed.at()].header, sign.word());
    }
    return true;
  }
  return false;
}

}  // namespace peercached
