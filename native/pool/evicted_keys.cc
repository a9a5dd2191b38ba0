#include "pool/evicted_keys.h"

#include <algorithm>
#include <bit>

namespace peercached {

namespace {

constexpr uint32_t kUnits = 1 << 16;
constexpr uint64_t kPageBytes = 64 << 10;
constexpr uint64_t kEntriesMin = 1 << 12, kEntriesMax = 1 << 24;

uint32_t mark_of(const Digest& digest) {
  return std::max(static_cast<uint32_t>(digest.hi), uint32_t{1});
}

size_t buckets_for(uint64_t pool_bytes) {
  const uint64_t entries = std::clamp(3 * pool_bytes / kPageBytes, kEntriesMin, kEntriesMax);
  return std::bit_ceil(entries) / 4;
}

}  // namespace

EvictedKeys::EvictedKeys(uint64_t pool_bytes)
    : unit_(std::max<uint64_t>(pool_bytes / kUnits, 1)), buckets_(buckets_for(pool_bytes)) {}

void EvictedKeys::add(const Digest& digest, uint64_t bytes) {
  MutexLock lock(mutex_);
  evicted_bytes_ += bytes;
  const uint32_t at = now(), mark = mark_of(digest);
  Bucket& bucket = buckets_[bucket_of(digest)];
  auto place = std::ranges::find(bucket, mark, &Entry::mark);
  if (place == bucket.end()) place = std::ranges::find(bucket, 0u, &Entry::mark);
  if (place == bucket.end()) {
    place = std::ranges::max_element(bucket, {}, [at](const Entry& e) { return at - e.at; });
  }
  *place = {mark, at};
}

unsigned EvictedKeys::pools_needed(const Digest& digest) const {
  MutexLock lock(mutex_);
  const Bucket& bucket = buckets_[bucket_of(digest)];
  const auto entry = std::ranges::find(bucket, mark_of(digest), &Entry::mark);
  if (entry == bucket.end()) return 0;
  const uint32_t since = now() - entry->at;
  if (since < kUnits) return 2;
  return since < 3 * kUnits ? 4 : 0;
}

}  // namespace peercached
