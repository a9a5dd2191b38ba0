#include "shard/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>

#include "shard/shard_impl.h"
#include "shard/update.h"

namespace peercached {
namespace {

// Bounds how long a rebuild, which readers of the piece wait for, may take: about half a
// millisecond at this many records.
constexpr uint64_t kRecordsPerPieceMax = 64 * 1024;

// Rows sorted by piece at a time. Bounds the memory that takes, and for how long a piece is busy;
// many rows for each piece find its buckets in the cache, and let it grow in one step.
constexpr size_t kRowsPerRound = 1024 * 1024;

// How far ahead of its use a slot is fetched; its bucket's head twice, the row three times as far.
constexpr uint32_t kRowsAhead = 6;

// Digests whose cache misses overlap.
constexpr size_t kDigestsInFlight = 16;

uint64_t checked_capacity(uint64_t entries) {
  if (entries == 0 || entries > Shard::kCapacityEntriesMax)
    throw std::invalid_argument("a directory of " + std::to_string(entries) +
                                " records: set directory_capacity to 1 to " +
                                std::to_string(Shard::kCapacityEntriesMax));
  return entries;
}

size_t pieces_per_bucket_for(uint64_t capacity) {
  return std::bit_ceil(capacity / (kSummaryBuckets * kRecordsPerPieceMax) + 1);
}

// The phases 0, 1/2, 1/4, 3/4, ...: even over any number of pieces.
float phase_of(size_t piece) {
  auto reversed = static_cast<uint32_t>(piece);
  float phase = 0;
  for (float half = 0.5; reversed != 0; reversed >>= 1, half /= 2)
    if (reversed & 1) phase += half;
  return phase;
}

}  // namespace

Shard::Impl::Impl(uint64_t capacity_entries)
    : pieces_per_bucket(pieces_per_bucket_for(checked_capacity(capacity_entries))),
      pieces_count(kSummaryBuckets * pieces_per_bucket),
      buckets_max_per_piece(Piece::buckets_for_capacity(capacity_entries / pieces_count)),
      holders(capacity_entries),
      memory(pieces_count * buckets_max_per_piece * sizeof(Bucket), "the directory's records"),
      pieces(std::make_unique<Piece[]>(pieces_count)) {
  auto* base = reinterpret_cast<Bucket*>(memory.base());
  for (size_t p = 0; p < pieces_count; ++p)
    pieces[p].place(base + p * buckets_max_per_piece, buckets_max_per_piece, phase_of(p));
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

Shard::Shard(uint64_t capacity_entries) : impl_(std::make_unique<Impl>(capacity_entries)) {}
Shard::~Shard() = default;

void Shard::add_holder(HolderIndex holder) { impl_->holders.add(holder); }
void Shard::drop_holder(HolderIndex holder) { impl_->holders.drop(holder); }
bool Shard::swept(HolderIndex holder) const { return impl_->holders.swept(holder); }

ShardApplied Shard::apply(HolderIndex holder, std::span<const RecordRow> rows) {
  ShardApplied applied;
  const HolderTable::Hold hold(impl_->holders, holder);
  if (!hold) {
    applied.bad = static_cast<uint32_t>(rows.size());
    impl_->count(applied);
    return applied;
  }
  // Piece by piece, each with one lock and with its buckets in the cache; the rows of one digest
  // stay in order.
  std::vector<uint32_t> piece_ends(impl_->pieces_count + 1);
  std::vector<uint32_t> order;
  for (; !rows.empty(); rows = rows.subspan(std::min(rows.size(), kRowsPerRound))) {
    const auto round = rows.first(std::min(rows.size(), kRowsPerRound));
    std::fill(piece_ends.begin(), piece_ends.end(), 0);
    uint32_t good = 0;
    for (const RecordRow& row : round) {
      if (!PackedRecord::representable(row)) continue;
      ++piece_ends[impl_->piece_of(row.digest) + 1];
      ++good;
    }
    applied.bad += static_cast<uint32_t>(round.size()) - good;
    // Starts for now; filling moves each to its piece's end.
    for (size_t p = 1; p < piece_ends.size(); ++p) piece_ends[p] += piece_ends[p - 1];
    order.resize(good);
    for (uint32_t i = 0; i < round.size(); ++i)
      if (PackedRecord::representable(round[i]))
        order[piece_ends[impl_->piece_of(round[i].digest)]++] = i;

    const auto digest_at = [&](uint32_t i) -> const Digest& { return round[order[i]].digest; };
    // Also beyond the piece at hand: small batches have a row or two for each.
    const auto fetch_ahead = [&](uint32_t i) {
      if (i + 3 * kRowsAhead < good) {
        const RecordRow& row = round[order[i + 3 * kRowsAhead]];
        __builtin_prefetch(&row);
        __builtin_prefetch(&row.check);  // in the next line, perhaps
      }
      if (i + 2 * kRowsAhead < good) {
        const Digest& digest = digest_at(i + 2 * kRowsAhead);
        impl_->pieces[impl_->piece_of(digest)].prefetch_head(digest);
      }
      if (i + kRowsAhead < good) {
        const Digest& digest = digest_at(i + kRowsAhead);
        impl_->pieces[impl_->piece_of(digest)].prefetch_record(digest);
      }
    };
    for (uint32_t begin = 0; begin < good;) {
      const size_t p = impl_->piece_of(digest_at(begin));
      const uint32_t end = piece_ends[p];
      PieceUpdate update(impl_->pieces[p], impl_->holders, impl_->scratch, holder, end - begin,
                         applied);
      for (uint32_t i = begin; i < end; ++i) {
        fetch_ahead(i);
        update.apply(round[order[i]]);
      }
      begin = end;
    }
  }
  impl_->count(applied);
  return applied;
}

void Shard::lookup(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  if (out.capacity() - out.size() < digests.size())
    out.reserve(std::max(2 * out.capacity(), out.size() + digests.size()));
  uint64_t hits = 0;
  std::array<const Piece*, kDigestsInFlight> pieces;
  for (size_t begin = 0; begin < digests.size(); begin += kDigestsInFlight) {
    const auto some = digests.subspan(begin, std::min(kDigestsInFlight, digests.size() - begin));
    for (size_t i = 0; i < some.size(); ++i) {
      pieces[i] = &impl_->pieces[impl_->piece_of(some[i])];
      pieces[i]->prefetch_head(some[i]);
    }
    for (size_t i = 0; i < some.size(); ++i) pieces[i]->prefetch_record(some[i]);
    for (size_t i = 0; i < some.size(); ++i) {
      RecordRow rows[kHoldersPerDigestMax];
      const unsigned found = pieces[i]->read(some[i], impl_->holders, rows);
      out.insert(out.end(), rows, rows + found);
      hits += found > 0;
    }
  }
  impl_->counters.lookups.fetch_add(digests.size(), std::memory_order_relaxed);
  impl_->counters.hits.fetch_add(hits, std::memory_order_relaxed);
}

size_t Shard::sweep(size_t buckets_max) {
  std::lock_guard cursor_lock(impl_->sweep_mutex);
  size_t visited = 0;
  while (visited < buckets_max && impl_->holders.dead_records() > 0) {
    Piece& piece = impl_->pieces[impl_->sweep_piece];
    std::lock_guard lock(piece.mutex);
    const uint32_t count = piece.buckets();
    // The piece may have been rebuilt since, and is smaller now: that removed its dead, too.
    const uint32_t first = std::min(impl_->sweep_bucket, count);
    const auto end = static_cast<uint32_t>(std::min<size_t>(count, first + buckets_max - visited));
    piece.for_each(first, end, 0, [&](Place place, const Digest&, const PackedRecord& record) {
      if (impl_->holders.live(record.holder())) return;
      piece.erase(place);
      impl_->holders.removed(record.holder());
    });
    visited += std::max(end - first, 1u);
    impl_->sweep_bucket = end;
    if (end < count) break;
    impl_->counters.full += piece.shrink_if_sparse(impl_->holders, impl_->scratch);
    impl_->sweep_bucket = 0;
    impl_->sweep_piece = (impl_->sweep_piece + 1) % impl_->pieces_count;
  }
  if (impl_->holders.dead_records() == 0) return 0;
  size_t left = 0;
  for (size_t p = impl_->sweep_piece; p < impl_->pieces_count; ++p)
    left += impl_->pieces[p].buckets();
  return std::max<size_t>(left - std::min<size_t>(left, impl_->sweep_bucket), 1);
}

ShardStats Shard::stats() const {
  ShardStats stats;
  stats.entries = impl_->holders.live_records();
  stats.dead_entries = impl_->holders.dead_records();
  stats.capacity_entries = impl_->holders.capacity();
  stats.bytes = impl_->pieces_count * sizeof(Piece) + impl_->holders.resident_bytes() +
                impl_->scratch.bytes();
  for (size_t p = 0; p < impl_->pieces_count; ++p)
    stats.bytes += impl_->pieces[p].buckets() * sizeof(Bucket);
  const auto& c = impl_->counters;
  stats.added = c.added;
  stats.changed = c.changed;
  stats.withdrawn = c.withdrawn;
  stats.old = c.old;
  stats.full = c.full;
  stats.bad = c.bad;
  stats.lookups = c.lookups;
  stats.hits = c.hits;
  return stats;
}

}  // namespace peercached
