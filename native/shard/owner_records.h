// A holder's records as their owners have them: the holder's side of a resync.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "common/summary.h"
#include "common/types.h"
#include "shard/ring.h"

namespace peercached {

// Owner -> kSummaryBuckets summaries of the records that it owns. Owners of none are left out: in a
// large cluster they are the most.
using OwnerSummaries = std::map<HolderIndex, std::vector<BucketSummary>>;

void add_to_summaries(OwnerSummaries& by_owner, std::span<const RecordRow> rows, const Ring& ring);

// Appends those of `rows` that `owner` owns, in the buckets whose byte in `buckets` is not 0.
void append_owned(std::vector<RecordRow>& out, std::span<const RecordRow> rows, const Ring& ring,
                  HolderIndex owner, std::span<const uint8_t> buckets);

}  // namespace peercached
