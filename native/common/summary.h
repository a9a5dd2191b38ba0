// Digest summaries: how a holder and an owner find out cheaply which records they disagree on
// (resync: docs/protocol.md, "Publish").
//
// Records are grouped by their digest's first byte. Each group is summed up by a number that
// does not depend on the order of its records, so that both sides can compute it from tables
// laid out differently; groups that differ are then sent whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/types.h"

namespace peercached {

inline constexpr size_t kSummaryBuckets = 256;

struct BucketSummary {
  uint64_t hash = 0;  // sum (mod 2^64) of summary_term over the records
  uint64_t count = 0;
  friend bool operator==(const BucketSummary&, const BucketSummary&) = default;
};

// The digest's first byte in memory order.
inline unsigned bucket_of(const Digest& d) { return static_cast<unsigned>(d.hi & 0xff); }

// What one record adds: the same whether taken from the holder's row or the shard's. Depends on the
// digest and, if resident, on the 48 bits of the generation that a directory keeps; else on length
// and check. A page on disk has no generation of its own: whoever asks its holder is answered by
// digest, and all that matters of the record's generation is that it is below those to come.
uint64_t summary_term(const RecordRow& row);

}  // namespace peercached
