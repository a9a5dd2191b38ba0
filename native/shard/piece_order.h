// The rows of an update, grouped by the piece they belong to: each piece is locked once, and its
// buckets are in the cache meanwhile. Within a piece they keep their order.
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
  // At most 2^32 - 1 rows. Leaves out those that cannot be stored.
  PieceOrder(const Shard::Impl& shard, std::span<const RecordRow> rows);

  uint32_t size() const { return size_; }
  uint32_t end_of(size_t piece) const { return ends_[piece]; }
  const RecordRow& row(uint32_t at) const { return rows_[items_[at].row]; }

  // For the caches, in this order, each some way ahead of the next and of the row's use. Always
  // inline: see Piece::prefetch_head().
  [[gnu::always_inline]] void prefetch_row(uint32_t at) const {
    if (at >= size_) return;
    __builtin_prefetch(&row(at));
    __builtin_prefetch(&row(at).check);  // in the next line, perhaps
  }
  [[gnu::always_inline]] void prefetch_head(uint32_t at) const {
    if (at < size_) Piece::prefetch_head(home(at));
  }
  [[gnu::always_inline]] void prefetch_record(uint32_t at) const {
    if (at >= size_) return;
    const Digest& digest = row(at).digest;
    shard_.pieces[shard_.piece_of(digest)].prefetch_record(digest, home(at));
  }

 private:
  struct Item {
    uint32_t row;
    uint32_t home;  // in the whole table, as it was when the rows were sorted
  };
  Bucket* home(uint32_t at) const { return shard_.buckets() + items_[at].home; }

  const Shard::Impl& shard_;
  const std::span<const RecordRow> rows_;
  uint32_t size_ = 0;
  std::unique_ptr<uint32_t[]> ends_;
  std::unique_ptr<Item[]> items_;
};

}  // namespace peercached
