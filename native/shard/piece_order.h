// Groups the rows of an update by piece. So each piece is locked once, and its buckets stay in the
// cache meanwhile. Rows keep their order within a piece.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "common/types.h"
#include "shard/shard_impl.h"

namespace peercached {

class PieceOrder {
 public:
  // At most 2^32 - 1 rows. Leaves out rows that cannot be stored.
  PieceOrder(const Shard::Impl& shard, std::span<const RecordRow> rows);

  uint32_t size() const { return size_; }
  uint32_t end_of(size_t piece) const { return ends_[piece]; }
  const RecordRow& row(uint32_t at) const { return rows_[order_[at]]; }

  // Cache hints: call prefetch_first() before the first row and prefetch_after() with each row.
  // Always inline: see Piece::prefetch_free_cell().
  [[gnu::always_inline]] void prefetch_first() const {
    for (uint32_t at = 0; at < 3 * kRowsAhead; ++at) prefetch_row(at);
    for (uint32_t at = 0; at < 2 * kRowsAhead; ++at) prefetch_home(at);
    for (uint32_t at = 0; at < kRowsAhead; ++at) prefetch_record(at);
  }
  // Prefetches beyond the current piece too: small batches have only a row or two per piece.
  [[gnu::always_inline]] void prefetch_after(uint32_t at) const {
    prefetch_row(at + 3 * kRowsAhead);
    prefetch_home(at + 2 * kRowsAhead);
    prefetch_record(at + kRowsAhead);
  }

 private:
  // Rows between prefetch and use: 1x for a record, 2x for its bucket, 3x for the row.
  static constexpr uint32_t kRowsAhead = 6;

  [[gnu::always_inline]] void prefetch_row(uint32_t at) const {
    if (at >= size_) return;
    __builtin_prefetch(&row(at));
    __builtin_prefetch(&row(at).check);  // may be in the next cache line
  }
  [[gnu::always_inline]] void prefetch_home(uint32_t at) const {
    if (at < size_) __builtin_prefetch(piece_of(at).home(row(at).digest));
  }
  [[gnu::always_inline]] void prefetch_record(uint32_t at) const {
    if (at >= size_) return;
    const Piece& piece = piece_of(at);
    piece.prefetch_record(row(at).digest);
    piece.prefetch_free_cell();
  }
  const Piece& piece_of(uint32_t at) const {
    return shard_.pieces[shard_.piece_of(row(at).digest)];
  }

  const Shard::Impl& shard_;
  const std::span<const RecordRow> rows_;
  uint32_t size_ = 0;
  std::unique_ptr<uint32_t[]> ends_;
  std::unique_ptr<uint32_t[]> order_;  // row indices, then the same number of words as scratch
};

}  // namespace peercached
