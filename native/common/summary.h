// Digest summaries: a cheap way for a holder and an owner to find the records on which they
// disagree (resync: docs/protocol.md, "Publish").
//
// Records are grouped by their digest's first byte. The sum of a group does not depend on the order
// of its records, so both sides can compute it from tables with different layouts. Groups that
// differ are then sent whole.
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

// One record's term: the same from the holder's row and from the shard's. It depends on the digest.
// For a resident page it also depends on the 48 bits of the generation that a directory keeps, else
// on length and check. A page on disk has no generation of its own. Readers ask its holder by
// digest, and the record's generation only has to be below later ones.
uint64_t summary_term(const RecordRow& row);

}  // namespace peercached
