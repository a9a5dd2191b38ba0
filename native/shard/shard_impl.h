// The parts of a Shard, for the files that implement it.
#pragma once

#include <atomic>
#include <bit>
#include <functional>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "shard/holder_table.h"
#include "shard/piece.h"
#include "shard/reserved_memory.h"
#include "shard/shard.h"

namespace peercached {

inline constexpr size_t kLowBytes = 256;

struct Shard::Impl {
  Impl(uint64_t capacity_entries, std::function<void()> told_untidy);

  // Pieces are grouped by the low byte of `hi`, which their records need not store. The top of `hi`
  // chooses the home within a piece. `lo` would not do: the ring uses it, so an owner may see only
  // some of its values.
  size_t piece_of(const Digest& digest) const {
    return (digest.hi & 0xff) * pieces_per_bucket + (digest.hi >> 8 & (pieces_per_bucket - 1));
  }
  unsigned low_byte_of(size_t piece) const {
    return static_cast<unsigned>(piece / pieces_per_bucket);
  }

  void count(const ShardApplied& applied);
  // Tells sweep() that at least one piece is filling up.
  void want_room();
  // For sweep(); returns about how many pieces are left.
  size_t make_room(size_t records_max) REQUIRES(sweep_mutex);

  const size_t pieces_per_bucket;  // a power of two
  const size_t pieces_count;
  const uint32_t buckets_max_per_piece;
  HolderTable holders;
  ReservedMemory index_memory;
  ReservedMemory cells_memory;
  std::unique_ptr<Piece[]> pieces;

  const std::function<void()> on_untidy;
  Mutex sweep_mutex;
  size_t sweep_piece GUARDED_BY(sweep_mutex) = 0;
  uint32_t sweep_cell GUARDED_BY(sweep_mutex) = 0;
  size_t room_piece GUARDED_BY(sweep_mutex) = 0;
  std::atomic<bool> room_wanted{false};

  struct Counters {
    std::atomic<uint64_t> added{0}, changed{0}, withdrawn{0}, old{0}, full{0}, bad{0};
    std::atomic<uint64_t> lookups{0}, hits{0};
  } counters;
};

}  // namespace peercached
