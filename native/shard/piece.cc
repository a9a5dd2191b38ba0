#include "shard/piece.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace peercached {

uint32_t Piece::buckets_for_capacity(uint64_t records) {
  // Random digests spread over the pieces with a standard deviation of sqrt(records): six of
  // them more, and no piece of a full table is short of room.
  const double most = static_cast<double>(records) + 6 * std::sqrt(records) + 1;
  const auto pages = static_cast<uint32_t>(std::ceil(most / (kBucketsPerPage * 12)));
  return pages * kBucketsPerPage;
}

void Piece::place(Bucket* base, uint32_t buckets_max, float phase) {
  base_ = base;
  buckets_max_ = buckets_max;
  phase_ = phase;
  buckets_.store(kBucketsPerPage, std::memory_order_release);
}

// --- readers -------------------------------------------------------------------------------

void Piece::prefetch_record(const Digest& digest, Bucket* home) const {
  // What it reads unchecked is read again, checked.
  const auto header = BucketHeader::of(load_relaxed(home->header));
  const unsigned match = slots_matching_unordered(*home, digest.lo, header.occupied);
  if (match == 0 && (header.overflow != 0 || header.occupied == kAllSlots)) {
    Probe probe(digest.hi >> 8, buckets());
    probe.next();
    prefetch_head(base_ + probe.at());
  }
  // Not there: if it is to be stored, then in the first free slot.
  const unsigned candidates = match != 0 ? match : ~unsigned{header.occupied} & kAllSlots;
  if (candidates == 0) return;
  const uint32_t* rest = home->rest[std::countr_zero(candidates)];
  __builtin_prefetch(rest);
  __builtin_prefetch(rest + PackedRecord::kWords - 1);
}

unsigned Piece::read(const Digest& digest, const HolderTable& holders,
                     RecordRow out[kHoldersPerDigestMax]) const {
  for (int attempt = 0; attempt < 64; ++attempt) {
    const int found = try_read(digest, holders, out);
    if (found >= 0) return static_cast<unsigned>(found);
    // A rebuild takes far longer than a change in place; and the writer may need our processor.
    if (attempt >= 4) std::this_thread::yield();
  }
  // Many writers in a row: get in line.
  std::lock_guard lock(mutex);
  return static_cast<unsigned>(try_read(digest, holders, out));
}

// -1: somebody is changing what it saw.
int Piece::try_read(const Digest& digest, const HolderTable& holders,
                    RecordRow out[kHoldersPerDigestMax]) const {
  const uint32_t version = version_.load(std::memory_order_acquire);
  if (version & 1) return -1;
  const uint32_t count = buckets();
  unsigned found = 0;
  for (Probe probe(digest.hi >> 8, count); !probe.done(); probe.next()) {
    Bucket& bucket = base_[probe.at()];
    const uint64_t word = load_acquire(bucket.header);
    const auto header = BucketHeader::of(word);
    if (header.changing()) return -1;
    for (unsigned match = slots_matching(bucket, digest.lo, header.occupied); match != 0;
         match &= match - 1) {
      const PackedRecord record = load_record(bucket, std::countr_zero(match));
      if (record.hi_above_low_byte() != digest.hi >> 8 || !holders.live(record.holder())) continue;
      // Between two buckets a record may have come while another one went.
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
    Bucket& bucket = base_[probe.at()];
    if (BucketHeader::of(load_relaxed(bucket.header)).occupied == kAllSlots &&
        !free_a_dead_slot(probe.at(), holders))
      continue;
    const unsigned occupied = BucketHeader::of(load_relaxed(bucket.header)).occupied;
    return Place{probe.at(), static_cast<uint32_t>(std::countr_one(occupied))};
  }
  return Place::none();
}

void Piece::overwrite(Place place, const Digest& digest, const PackedRecord& record) {
  BucketChange(base_[place.bucket]).put(place.slot, digest.lo, record);
}

void Piece::erase(Place place) {
  Bucket& bucket = base_[place.bucket];
  const Probe probe(load_record(bucket, place.slot).hi_above_low_byte(), buckets());
  BucketChange(bucket).clear(place.slot);
  add_overflow(probe, place.bucket, -1);
  --used_;
}

bool Piece::free_a_dead_slot(uint32_t bucket, HolderTable& holders) {
  if (holders.dead_records() == 0) return false;
  for (uint32_t slot = 0; slot < kBucketSlots; ++slot) {
    const HolderIndex holder = load_holder(base_[bucket], slot);
    if (holders.live(holder)) continue;
    erase({bucket, slot});
    holders.removed(holder);
    return true;
  }
  return false;
}

// --- size ----------------------------------------------------------------------------------

uint32_t Piece::size_for(uint64_t records) const {
  const double pages_least = static_cast<double>(records) / record_limit(kBucketsPerPage);
  double step = std::floor(std::log(std::max(pages_least, 1.0)) / std::log(kGrowth)) - 1;
  for (;; ++step) {
    const auto pages = static_cast<uint64_t>(std::round(std::pow(kGrowth, step + phase_)));
    const uint64_t buckets = pages * kBucketsPerPage;
    if (buckets >= buckets_max_) return buckets_max_;
    if (pages >= pages_least && pages >= 1) return static_cast<uint32_t>(buckets);
  }
}

uint32_t Piece::grow(uint64_t expected, HolderTable& holders, RebuildScratch& scratch) {
  uint64_t dead = 0;
  if (holders.dead_records() > 0)
    for_each(0, buckets(), 0, [&](Place, const Digest&, const PackedRecord& record) {
      dead += !holders.live(record.holder());
    });
  // Where throwing out the dead makes room, make sure that it is not used up at once.
  const uint64_t live = used_ - dead;
  const uint64_t wanted = dead > 0 ? live + live / 16 + 1 : record_limit(buckets()) + 1;
  return rebuild(size_for(std::max(wanted, live + expected + 1)), holders, scratch);
}

uint32_t Piece::shrink_if_sparse(HolderTable& holders, RebuildScratch& scratch) {
  const uint32_t count = buckets();
  if (count == kBucketsPerPage || used_ > record_limit(count) / 2) return 0;
  const uint32_t smaller = size_for(used_ + used_ / 16 + 1);
  return smaller < count ? rebuild(smaller, holders, scratch) : 0;
}

uint32_t Piece::rebuild(uint32_t count, HolderTable& holders, RebuildScratch& scratch) {
  std::lock_guard lock(scratch.mutex);
  auto& entries = scratch.entries;
  entries.clear();
  const uint32_t count_before = buckets();
  for_each(0, count_before, 0, [&](Place place, const Digest& digest, const PackedRecord& record) {
    if (holders.live(record.holder()))
      entries.push_back({digest.lo, record});
    else
      holders.removed(record.holder());
    (void)place;
  });
  if (count > count_before)
    ReservedMemory::commit(base_ + count_before, (count - count_before) * sizeof(Bucket));

  const uint32_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  buckets_.store(count, std::memory_order_release);
  for (uint32_t at = 0; at < count; ++at) {
    BucketHeader header = BucketHeader::of(load_relaxed(base_[at].header));
    store_release(base_[at].header, BucketHeader{header.version + 2, 0, 0}.word());
  }
  uint32_t lost = 0;
  for (const auto& entry : entries) {
    if (settle_in(entry, count)) continue;
    holders.removed(entry.record.holder());
    ++lost;
  }
  used_ = static_cast<uint32_t>(entries.size()) - lost;
  if (count < count_before)
    ReservedMemory::release(base_ + count, (count_before - count) * sizeof(Bucket));
  version_.store(version + 2, std::memory_order_release);
  return lost;
}

// Within a rebuild: no reader looks, so the buckets' own versions may rest.
bool Piece::settle_in(const RebuildScratch::Entry& entry, uint32_t count) {
  for (Probe probe(entry.record.hi_above_low_byte(), count); !probe.done(); probe.next()) {
    Bucket& bucket = base_[probe.at()];
    auto header = BucketHeader::of(load_relaxed(bucket.header));
    const auto slot = static_cast<unsigned>(std::countr_one(header.occupied));
    if (slot == kBucketSlots) continue;
    store_record(bucket, slot, entry.lo, entry.record);
    header.occupied |= static_cast<uint16_t>(1u << slot);
    store_release(bucket.header, header.word());
    for (Probe passed(entry.record.hi_above_low_byte(), count); passed.at() != probe.at();
         passed.next()) {
      auto sign = BucketHeader::of(load_relaxed(base_[passed.at()].header));
      ++sign.overflow;
      store_release(base_[passed.at()].header, sign.word());
    }
    return true;
  }
  return false;
}

}  // namespace peercached
