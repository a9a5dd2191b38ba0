// Directory calls, shared by an engine's shard and a stand-alone table.
#pragma once

#include "bindings/packed.h"
#include "shard/owner_records.h"

namespace peercached {

inline nb::tuple applied_tuple(const ShardApplied& applied) {
  return nb::make_tuple(applied.added, applied.changed, applied.withdrawn, applied.old,
                        applied.full);
}

inline nb::tuple shard_apply(Shard& shard, HolderIndex holder, const nb::bytes& packed) {
  const InPlace<RecordRow> rows(packed, "rows");
  return applied_tuple(unlocked([&] { return shard.apply(holder, rows); }));
}

inline nb::bytes shard_lookup(Shard& shard, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<RecordRow> rows;
  unlocked([&] { shard.lookup(digests, rows); });
  return pack(rows);
}

inline nb::bytes shard_summary(Shard& shard, HolderIndex holder, const Ring& ring,
                               HolderIndex self) {
  std::vector<BucketSummary> buckets(kSummaryBuckets);
  unlocked([&] { shard.summary(holder, ring, self, buckets); });
  return pack(buckets);
}

inline nb::tuple shard_replace(Shard& shard, HolderIndex holder, unsigned bucket, Generation as_of,
                               const nb::bytes& packed, const Ring& ring, HolderIndex self) {
  if (bucket >= kSummaryBuckets) {
    throw std::invalid_argument("bucket: " + std::to_string(bucket) + " is not below 256");
  }
  const InPlace<RecordRow> rows(packed, "rows");
  return applied_tuple(
      unlocked([&] { return shard.replace(holder, bucket, as_of, ring, self, rows); }));
}

inline size_t shard_trim(Shard& shard, const Ring& ring, HolderIndex self) {
  return unlocked([&] { return shard.trim(ring, self); });
}

inline nb::dict summaries_dict(const OwnerSummaries& by_owner) {
  nb::dict packed;
  for (const auto& [owner, buckets] : by_owner) packed[nb::int_(owner)] = pack(buckets);
  return packed;
}

inline std::vector<uint8_t> bucket_mask(const nb::bytes& packed) {
  auto buckets = unpack<uint8_t>(packed, "buckets");
  if (buckets.size() != kSummaryBuckets) {
    throw std::invalid_argument("buckets: a mask of 256 bytes is wanted, not " +
                                std::to_string(buckets.size()));
  }
  return buckets;
}

}  // namespace peercached
