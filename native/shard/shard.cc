#include "shard/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>

#include "shard/piece_order.h"
#include "shard/shard_impl.h"
#include "shard/update.h"

namespace peercached {
namespace {

// Bounds how long a rebuild blocks readers of a piece: about half a millisecond at this many
// records.
constexpr uint64_t kRecordsPerPieceMax = 64 * 1024;
static_assert(kRecordsPerPieceMax * 3 / 2 < BucketEntry::kCellsMax);  // even with the spare cells

// Rows sorted by piece per round. Bounds the memory for sorting and how long a piece is locked.
// With many rows per piece its buckets stay in the cache, and it can grow in one step.
constexpr size_t kRowsPerRound = 1024 * 1024;

// Lookups with overlapping cache misses.
constexpr size_t kDigestsInFlight = 16;

uint64_t checked_capacity(uint64_t entries) {
  if (entries == 0 || entries > Shard::kCapacityEntriesMax)
    throw std::invalid_argument("a directory of " + std::to_string(entries) +
                                " records: set directory_capacity to 1 to " +
                                std::to_string(Shard::kCapacityEntriesMax));
  return entries;
}

size_t pieces_per_bucket_for(uint64_t capacity) {
  return std::bit_ceil(capacity / (kLowBytes * kRecordsPerPieceMax) + 1);
}

// The phases 0, 1/2, 1/4, 3/4, ...: evenly spread for any number of pieces.
float phase_of(size_t piece) {
  auto reversed = static_cast<uint32_t>(piece);
  float phase = 0;
  for (float half = 0.5; reversed != 0; reversed >>= 1, half /= 2)
    if (reversed & 1) phase += half;
  return phase;
}

}  // namespace

Shard::Impl::Impl(uint64_t capacity_entries, std::function<void()> told_untidy)
    : pieces_per_bucket(pieces_per_bucket_for(checked_capacity(capacity_entries))),
      pieces_count(kLowBytes * pieces_per_bucket),
      buckets_max_per_piece(Piece::buckets_for_capacity(capacity_entries / pieces_count)),
      holders(capacity_entries),
      index_memory(pieces_count * Piece::index_bytes_for(buckets_max_per_piece),
                   "the directory's index"),
      cells_memory(pieces_count * Piece::cell_bytes_for(buckets_max_per_piece),
                   "the directory's records"),
      pieces(std::make_unique<Piece[]>(pieces_count)),
      on_untidy(told_untidy ? std::move(told_untidy) : [] {}) {
  std::byte* index = index_memory.base();
  std::byte* cells = cells_memory.base();
  for (size_t p = 0; p < pieces_count; ++p) {
    pieces[p].place(reinterpret_cast<Bucket*>(index), buckets_max_per_piece, cells, phase_of(p));
    index += Piece::index_bytes_for(buckets_max_per_piece);
    cells += Piece::cell_bytes_for(buckets_max_per_piece);
  }
}

void Shard::Impl::count(const ShardApplied& applied) {
  auto add = [](std::atomic<uint64_t>& counter, uint64_t value) {
    if (value != 0) counter.fetch_add(value, std::memory_order_relaxed);
  };
  add(counters.added, applied.added);
  add(counters.changed, applied.changed);
  add(counters.withdrawn, applied.withdrawn);
  add(counters.old, applied.old);
  add(counters.full, applied.full);
  add(counters.bad, applied.bad);
}

Shard::Shard(uint64_t capacity_entries, std::function<void()> on_untidy)
    : impl_(std::make_unique<Impl>(capacity_entries, std::move(on_untidy))) {}
Shard::~Shard() = default;

void Shard::add_holder(HolderIndex holder) { impl_->holders.add(holder); }
void Shard::drop_holder(HolderIndex holder) {
  impl_->holders.drop(holder);
  impl_->on_untidy();
}
bool Shard::live(HolderIndex holder) const { return impl_->holders.live(holder); }
bool Shard::swept(HolderIndex holder) const { return impl_->holders.swept(holder); }

ShardApplied Shard::apply(HolderIndex holder, std::span<const RecordRow> rows) {
  ShardApplied applied;
  const HolderTable::Hold hold(impl_->holders, holder);
  if (!hold) {
    applied.bad = static_cast<uint32_t>(rows.size());
    impl_->count(applied);
    return applied;
  }
  bool filling_up = false;
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), kRowsPerRound))) {
    const auto round = rows.first(std::min(rows.size(), kRowsPerRound));
    const PieceOrder order(*impl_, round);
    applied.bad += static_cast<uint32_t>(round.size()) - order.size();
    order.prefetch_first();
    for (uint32_t i = 0; i < order.size();) {
      const size_t piece = impl_->piece_of(order.row(i).digest);
      const uint32_t end = order.end_of(piece);
      PieceUpdate update(impl_->pieces[piece], impl_->holders, holder, end - i, applied);
      for (; i < end; ++i) {
        order.prefetch_after(i);
        update.apply(order.row(i));
      }
      filling_up |= update.filling_up();
    }
  }
  if (filling_up) impl_->want_room();
  impl_->count(applied);
  return applied;
}

void Shard::lookup(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  const uint64_t hits = find(digests, out);
  impl_->counters.lookups.fetch_add(digests.size(), std::memory_order_relaxed);
  impl_->counters.hits.fetch_add(hits, std::memory_order_relaxed);
}

uint64_t Shard::find(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  if (out.capacity() - out.size() < digests.size())
    out.reserve(std::max(2 * out.capacity(), out.size() + digests.size()));
  uint64_t hits = 0;
  std::array<const Piece*, kDigestsInFlight> pieces;
  for (size_t begin = 0; begin < digests.size(); begin += kDigestsInFlight) {
    const auto some = digests.subspan(begin, std::min(kDigestsInFlight, digests.size() - begin));
    for (size_t i = 0; i < some.size(); ++i) {
      pieces[i] = &impl_->pieces[impl_->piece_of(some[i])];
      __builtin_prefetch(pieces[i]->home(some[i]));
    }
    for (size_t i = 0; i < some.size(); ++i) pieces[i]->prefetch_record(some[i]);
    for (size_t i = 0; i < some.size(); ++i) {
      RecordRow rows[kHoldersPerDigestMax];
      const unsigned found = pieces[i]->read(some[i], impl_->holders, rows);
      out.insert(out.end(), rows, rows + found);
      hits += found > 0;
    }
  }
  return hits;
}

void Shard::lookup_all(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  for (const Digest& digest : digests) {
    impl_->pieces[impl_->piece_of(digest)].read_all(digest, impl_->holders, out);
  }
}

size_t Shard::sweep(size_t records_max) {
  MutexLock cursor_lock(impl_->sweep_mutex);
  size_t visited = 0;
  while (visited < records_max && impl_->holders.dead_records() > 0) {
    Piece& piece = impl_->pieces[impl_->sweep_piece];
    MutexLock lock(piece.mutex);
    // A rebuild may have shrunk the piece since then; it also removed the dead records.
    const uint32_t first = std::min(impl_->sweep_cell, piece.cells_end());
    const auto end =
        static_cast<uint32_t>(std::min<size_t>(piece.cells_end(), first + records_max - visited));
    piece.for_each(first, end, 0, [&](uint32_t cell, const Digest&, const PackedRecord& record) {
      if (impl_->holders.live(record.holder())) return;
      piece.mutex.assert_held();
      piece.remove(piece.place_of(cell, record), impl_->holders);
      impl_->holders.removed(record.holder());
    });
    visited += std::max(end - first, 1u);
    impl_->sweep_cell = end;
    if (end < piece.cells_end()) break;
    visited += piece.further().size();
    piece.further().remove_if(0, [&](const Digest&, const PackedRecord& record) {
      if (impl_->holders.live(record.holder())) return false;
      impl_->holders.removed(record.holder());
      return true;
    });
    piece.shrink_if_sparse(impl_->holders);
    impl_->sweep_cell = 0;
    impl_->sweep_piece = (impl_->sweep_piece + 1) % impl_->pieces_count;
  }
  if (impl_->holders.dead_records() == 0) return impl_->make_room(records_max);
  size_t left = 0;
  for (size_t p = impl_->sweep_piece; p < impl_->pieces_count; ++p)
    left += impl_->pieces[p].cells_end();
  return std::max<size_t>(left - std::min<size_t>(left, impl_->sweep_cell), 1);
}

void Shard::Impl::want_room() {
  if (!room_wanted.exchange(true)) on_untidy();
}

size_t Shard::Impl::make_room(size_t records_max) {
  if (room_piece == 0 && !room_wanted.exchange(false)) return 0;
  for (size_t visited = 0; room_piece < pieces_count && visited < records_max; ++room_piece) {
    Piece& piece = pieces[room_piece];
    MutexLock lock(piece.mutex);
    visited += 1;
    if (!piece.could_use_room()) continue;
    piece.make_room(holders);
    visited += piece.used();
  }
  const size_t left = pieces_count - room_piece;
  if (left == 0) room_piece = 0;
  return left;
}

ShardStats Shard::stats() const {
  ShardStats stats;
  stats.entries = impl_->holders.live_records();
  stats.dead_entries = impl_->holders.dead_records();
  stats.capacity_entries = impl_->holders.capacity();
  stats.bytes = impl_->pieces_count * sizeof(Piece) + impl_->holders.resident_bytes();
  for (size_t p = 0; p < impl_->pieces_count; ++p) {
    stats.index_bytes += impl_->pieces[p].index_bytes();
    stats.bytes += impl_->pieces[p].bytes();
  }
  const auto& c = impl_->counters;
  stats.added = c.added;
  stats.changed = c.changed;
  stats.withdrawn = c.withdrawn;
  stats.old = c.old;
  stats.full = c.full + impl_->holders.lost();
  stats.bad = c.bad;
  stats.lookups = c.lookups;
  stats.hits = c.hits;
  return stats;
}

}  // namespace peercached
