// The shard's side of a resync, and the cleanup after a view change.
#include <algorithm>

#include "shard/shard.h"
#include "shard/shard_impl.h"
#include "shard/update.h"

namespace peercached {

void Shard::summary(HolderIndex holder, const Ring& ring, HolderIndex self,
                    std::span<BucketSummary> out) const {
  std::fill(out.begin(), out.end(), BucketSummary{});
  if (!impl_->holders.live(holder)) return;
  for (size_t p = 0; p < impl_->pieces_count; ++p) {
    const Piece& piece = impl_->pieces[p];
    const unsigned bucket = impl_->low_byte_of(p);
    if (bucket >= out.size()) return;
    MutexLock lock(piece.mutex);
    const auto add = [&](const Digest& digest, const PackedRecord& record) {
      if (record.holder() != holder || !ring.owned_by(digest, self)) return;
      RecordRow row = record.row();
      row.digest = digest;
      out[bucket].hash += summary_term(row);
      ++out[bucket].count;
    };
    piece.for_each(
        0, piece.cells_end(), bucket,
        [&](uint32_t, const Digest& digest, const PackedRecord& record) { add(digest, record); });
    piece.further().for_each(bucket, add);
  }
}

ShardApplied Shard::replace(HolderIndex holder, unsigned bucket, Generation as_of, const Ring& ring,
                            HolderIndex self, std::span<const RecordRow> rows) {
  ShardApplied applied;
  const HolderTable::Hold hold(impl_->holders, holder);
  if (bucket >= kSummaryBuckets || !hold) {
    applied.bad = static_cast<uint32_t>(rows.size());
    impl_->count(applied);
    return applied;
  }
  // Sorted by (piece, digest). This gives the rows of each piece in order, and bisection tells
  // whether a stored record is among them.
  struct Wanted {
    size_t piece;
    Digest digest;
    const RecordRow* row;
    auto key() const { return std::pair(piece, digest); }
  };
  std::vector<Wanted> wanted;
  wanted.reserve(rows.size());
  for (const RecordRow& row : rows) {
    if (bucket_of(row.digest) != bucket || row.flags & kRecordWithdraw ||
        !PackedRecord::representable(row)) {
      ++applied.bad;
      continue;
    }
    wanted.push_back({impl_->piece_of(row.digest), row.digest, &row});
  }
  const auto by_key = [](const Wanted& a, const Wanted& b) { return a.key() < b.key(); };
  std::stable_sort(wanted.begin(), wanted.end(), by_key);

  bool filling_up = false;
  auto next = wanted.begin();
  for (size_t p = bucket * impl_->pieces_per_bucket; p < (bucket + 1) * impl_->pieces_per_bucket;
       ++p) {
    Piece& piece = impl_->pieces[p];
    const auto end =
        std::find_if(next, wanted.end(), [&](const Wanted& want) { return want.piece != p; });
    PieceUpdate update(piece, impl_->holders, holder, end - next, applied);
    const auto unwanted = [&](const Digest& digest, const PackedRecord& record) {
      return record.holder() == holder && record.generation() <= as_of &&
             ring.owned_by(digest, self) &&
             !std::binary_search(next, end, Wanted{p, digest, nullptr}, by_key);
    };
    update.withdraw_further(bucket, unwanted);
    piece.for_each(0, piece.cells_end(), bucket,
                   [&](uint32_t cell, const Digest& digest, const PackedRecord& record) {
                     if (!unwanted(digest, record)) return;
                     piece.mutex.assert_held();
                     update.withdraw(piece.place_of(cell, record));
                   });
    for (; next != end; ++next) update.apply(*next->row, as_of);
    filling_up |= update.filling_up();
  }
  if (filling_up) impl_->want_room();
  impl_->count(applied);
  return applied;
}

size_t Shard::trim(const Ring& ring, HolderIndex self) {
  size_t trimmed = 0;
  for (size_t p = 0; p < impl_->pieces_count; ++p) {
    Piece& piece = impl_->pieces[p];
    MutexLock lock(piece.mutex);
    const size_t trimmed_before = trimmed;
    trimmed += piece.further().remove_if(impl_->low_byte_of(p),
                                         [&](const Digest& digest, const PackedRecord& record) {
                                           if (ring.owned_by(digest, self)) return false;
                                           impl_->holders.removed(record.holder());
                                           return true;
                                         });
    piece.for_each(0, piece.cells_end(), impl_->low_byte_of(p),
                   [&](uint32_t cell, const Digest& digest, const PackedRecord& record) {
                     if (ring.owned_by(digest, self)) return;
                     piece.mutex.assert_held();
                     piece.remove(piece.place_of(cell, record), impl_->holders);
                     impl_->holders.removed(record.holder());
                     ++trimmed;
                   });
    if (trimmed > trimmed_before) impl_->counters.full += piece.shrink_if_sparse(impl_->holders);
  }
  return trimmed;
}

}  // namespace peercached
