#include "shard/owner_records.h"

namespace peercached {

void add_to_summaries(OwnerSummaries& by_owner, std::span<const RecordRow> rows, const Ring& ring) {
  HolderIndex owners[kOwnersMax];
  for (const RecordRow& row : rows) {
    const uint64_t term = summary_term(row);
    const unsigned count = ring.owners(row.digest, owners);
    for (unsigned i = 0; i < count; ++i) {
      std::vector<BucketSummary>& summary = by_owner[owners[i]];
      if (summary.empty()) summary.resize(kSummaryBuckets);
      BucketSummary& bucket = summary[bucket_of(row.digest)];
      bucket.hash += term;
      ++bucket.count;
    }
  }
}

void append_owned(std::vector<RecordRow>& out, std::span<const RecordRow> rows, const Ring& ring,
                  HolderIndex owner, std::span<const uint8_t> buckets) {
  for (const RecordRow& row : rows) {
    if (buckets[bucket_of(row.digest)] != 0 && ring.owned_by(row.digest, owner)) {
      out.push_back(row);
    }
  }
}

}  // namespace peercached
