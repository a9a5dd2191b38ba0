#include "shard/piece_order.h"

namespace peercached {

PieceOrder::PieceOrder(const Shard::Impl& shard, std::span<const RecordRow> rows)
    : shard_(shard), rows_(rows), ends_(std::make_unique<uint32_t[]>(shard.pieces_count + 1)) {
  struct Target {
    uint32_t piece, home;
  };
  const auto nowhere = static_cast<uint32_t>(shard.pieces_count);
  const auto targets = std::make_unique_for_overwrite<Target[]>(rows.size());
  const Bucket* first = shard.buckets();
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t piece = shard.piece_of(rows[i].digest);
    const bool good = PackedRecord::representable(rows[i]);
    targets[i] = {good ? static_cast<uint32_t>(piece) : nowhere,
                  static_cast<uint32_t>(shard.pieces[piece].home(rows[i].digest) - first)};
    ++ends_[targets[i].piece];
  }
  // Starts for now; filling moves each to its piece's end.
  for (size_t piece = 0; piece < shard.pieces_count; ++piece)
    size_ += std::exchange(ends_[piece], size_);
  items_ = std::make_unique_for_overwrite<Item[]>(size_);
  for (uint32_t i = 0; i < rows.size(); ++i)
    if (targets[i].piece != nowhere) items_[ends_[targets[i].piece]++] = {i, targets[i].home};
}

}  // namespace peercached
