#include "disk/index.h"

#include <algorithm>
#include <utility>

namespace peercached::disk {

namespace {
constexpr size_t kPlacesMin = 16;
constexpr double kFilledMax = 0.85;
constexpr double kGrowth = 1.5;
}  // namespace

Index::Index(NamespaceNumbers& namespaces)
    : namespaces_(namespaces), shards_(std::make_unique<Shard[]>(kShards)) {}
Index::~Index() = default;

std::optional<IndexedPage> Index::find(const Digest& digest) const {
  Shard& shard = shard_of(digest);
  MutexLock lock(shard.mutex);
  if (shard.used == 0) return std::nullopt;
  const IndexEntry* entry = shard.place_of(digest);
  if (entry->sequence == 0 || !live(*entry)) return std::nullopt;
  return IndexedPage{*entry, page_of(*entry)};
}

bool Index::insert(const DiskPage& page, const RecordPlace& record) {
  Shard& shard = shard_of(page.digest);
  MutexLock lock(shard.mutex);
  if (shard.used + 1 > static_cast<size_t>(kFilledMax * static_cast<double>(shard.table.size())))
    shard.grow();
  IndexEntry* place = shard.place_of(page.digest);
  if (place->sequence != 0 && live(*place)) return false;
  if (place->sequence != 0) erase(shard, place);
  add(shard, page, record);
  return true;
}

void Index::merge_newest(const DiskPage& page, const RecordPlace& record) {
  if (insert(page, record)) return;
  Shard& shard = shard_of(page.digest);
  MutexLock lock(shard.mutex);
  IndexEntry* place = shard.place_of(page.digest);
  if (std::pair(place->sequence, place->segment) >= std::pair(record.sequence, record.segment))
    return;
  erase(shard, place);
  add(shard, page, record);
}

bool Index::next_pages(uint64_t& at, std::vector<DiskPage>& pages) const {
  constexpr uint64_t kPlacesPerTurn = 1024;
  constexpr uint64_t kHashEnd = uint64_t{1} << 32;
  const Shard& shard = shards_[at / kHashEnd];
  MutexLock lock(shard.mutex);
  const size_t places = shard.table.size();
  const uint64_t from = at % kHashEnd;
  const uint64_t to = from + std::min(kHashEnd - from,
                                      kHashEnd * kPlacesPerTurn / std::max(places, kPlacesPerTurn));
  // An entry lies between its home and the next empty place, which may be beyond the table's end.
  const size_t first = home_of(from, places), last = home_of(to - 1, places);
  for (size_t n = 0; n < places; ++n) {
    const IndexEntry& entry = shard.table[(first + n) % places];
    if (entry.sequence == 0) {
      if (first + n >= last) break;
      continue;
    }
    const uint64_t hash = hash_of(entry.digest);
    if (from <= hash && hash < to && entry.on_disk() && live(entry)) {
      pages.push_back(page_of(entry));
    }
  }
  at += to - from;
  return at < kShards * kHashEnd;
}

DiskPage Index::page_of(const IndexEntry& entry) const {
  const NamespaceNumbers::Name name = namespaces_.name(entry.namespace_number);
  return {entry.digest, name.id,      name.epoch, entry.checksum,
          entry.length, entry.set_at, entry.born, static_cast<uint8_t>(entry.uses)};
}

Index::Totals Index::totals() const {
  Totals totals;
  for (unsigned s = 0; s < kShards; ++s) {
    const Shard& shard = shards_[s];
    MutexLock lock(shard.mutex);
    totals.pages += shard.used;
    totals.payload_bytes += shard.payload_bytes;
    totals.bytes += shard.table.capacity() * sizeof(IndexEntry);
  }
  return totals;
}

void Index::add(Shard& shard, const DiskPage& page, const RecordPlace& record) {
  const uint32_t number = namespaces_.acquire(page.namespace_id, page.epoch, page.length);
  *shard.place_of(page.digest) = {page.digest,    record.sequence, page.checksum,
                                  page.set_at,    number,          page.length,
                                  record.segment, record.unit,     0};
  shard.place_of(page.digest)->born = page.born;
  ++shard.used;
  shard.payload_bytes += page.length;
}

void Index::erase(Shard& shard, IndexEntry* entry) {
  namespaces_.release(entry->namespace_number, entry->length);
  --shard.used;
  shard.payload_bytes -= entry->length;
  shard.erase(entry);
}

IndexEntry* Index::Shard::place_of(const Digest& digest) {
  size_t at = home_of(hash_of(digest), table.size());
  while (table[at].sequence != 0 && table[at].digest != digest) {
    if (++at == table.size()) at = 0;
  }
  return &table[at];
}

void Index::Shard::grow() {
  std::vector<IndexEntry> old(
      std::max(kPlacesMin, static_cast<size_t>(kGrowth * static_cast<double>(table.size()))));
  old.swap(table);
  for (const IndexEntry& entry : old) {
    if (entry.sequence != 0) *place_of(entry.digest) = entry;
  }
}

// Backward-shift deletion: a later entry moves into the gap unless that is before its home.
void Index::Shard::erase(IndexEntry* entry) {
  size_t gap = static_cast<size_t>(entry - table.data());
  for (size_t at = gap;;) {
    if (++at == table.size()) at = 0;
    if (table[at].sequence == 0) break;
    const size_t home = home_of(hash_of(table[at].digest), table.size());
    const bool home_behind_gap = gap <= at ? gap < home && home <= at : gap < home || home <= at;
    if (home_behind_gap) continue;
    table[gap] = table[at];
    gap = at;
  }
  table[gap] = IndexEntry{};
}

}  // namespace peercached::disk
