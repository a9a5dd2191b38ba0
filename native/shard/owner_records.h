// A holder's records grouped by owner: the holder's side of a resync.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "common/summary.h"
#include "common/types.h"
#include "shard/ring.h"

namespace peercached {

// Owner -> kSummaryBuckets summaries of its records. Leaves out owners without records, which are
// most of them in a large cluster.
using OwnerSummaries = std::map<HolderIndex, std::vector<BucketSummary>>;

void add_to_summaries(OwnerSummaries& by_owner, std::span<const RecordRow> rows, const Ring& ring);

// Appends the rows that `owner` owns and whose bucket has a nonzero byte in `buckets`.
void append_owned(std::vector<RecordRow>& out, std::span<const RecordRow> rows, const Ring& ring,
                  HolderIndex owner, std::span<const uint8_t> buckets);

}  // namespace peercached
