#include "shard/piece_order.h"

namespace peercached {
namespace {

// 3 KiB ahead: hardware prefetchers stop at the page boundary.
constexpr size_t kRowsAhead = 64;

}  // namespace

PieceOrder::PieceOrder(const Shard::Impl& shard, std::span<const RecordRow> rows)
    : shard_(shard), rows_(rows), ends_(std::make_unique<uint32_t[]>(shard.pieces_count + 1)) {
  const auto nowhere = static_cast<uint32_t>(shard.pieces_count);
  // One allocation, of a size that the allocator keeps. Two would go back to the system each time
  // and be faulted in again page by page.
  order_ = std::make_unique_for_overwrite<uint32_t[]>(2 * rows.size());
  uint32_t* const pieces = order_.get() + rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    __builtin_prefetch(rows.data() + i + kRowsAhead);
    const bool good = PackedRecord::representable(rows[i]);
    pieces[i] = good ? static_cast<uint32_t>(shard.piece_of(rows[i].digest)) : nowhere;
    ++ends_[pieces[i]];
    __builtin_prefetch(&shard.pieces[pieces[i]]);
  }
  // ends_ holds starts for now; filling moves each to its piece's end.
  for (size_t piece = 0; piece < shard.pieces_count; ++piece)
    size_ += std::exchange(ends_[piece], size_);
  for (uint32_t i = 0; i < rows.size(); ++i)
    if (pieces[i] != nowhere) order_[ends_[pieces[i]]++] = i;
}

}  // namespace peercached
