// Holders of a page beyond the first three; for one piece of the directory table.
//
// Lookups return at most three holders, so the table stores only three records per digest. All
// records of a digest share one probe sequence, and a page that every node holds would fill it up.
// The other records wait here. When a record leaves the table, one of these takes its place. So
// while any waits here, the table has a record of the digest, live or dead.
//
// Needs the piece's mutex, except for the statistics and empty(), which is then a guess.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/types.h"
#include "shard/holder_table.h"
#include "shard/packed_record.h"

namespace peercached {

class FurtherHolders {
 public:
  bool empty() const { return size() == 0; }
  size_t size() const { return size_.load(std::memory_order_relaxed); }  // records
  // Approximate memory use.
  size_t bytes() const {
    return size() * sizeof(PackedRecord) + digests_.load(std::memory_order_relaxed) * kDigestBytes;
  }

  // nullptr: not found here.
  PackedRecord* find(const Digest& digest, HolderIndex holder);
  // Appends all live records of the digest.
  void append(const Digest& digest, const HolderTable& holders, std::vector<RecordRow>& out) const;
  void add(const PackedRecord& record);
  void remove(const PackedRecord& record);
  // Takes out the newest live record of the digest of `gone`; false if there is none. Removes and
  // accounts for dead records that it meets.
  bool take(const PackedRecord& gone, HolderTable& holders, PackedRecord& taken);
  // Loses all records of the digest of `gone` (HolderTable::lose()).
  void lose_all(const PackedRecord& gone, HolderTable& holders);

  // visit(const Digest&, const PackedRecord&). `low_byte` is that of the piece's digests.
  template <typename Visit>
  void for_each(unsigned low_byte, Visit&& visit) const {
    for (const auto& [key, records] : by_key_)
      for (const PackedRecord& record : records) visit(Digest{key.hi | low_byte, key.lo}, record);
  }
  // Removes a record if gone(const Digest&, const PackedRecord&) is true; returns their number. The
  // caller accounts for them.
  template <typename Gone>
  size_t remove_if(unsigned low_byte, Gone&& gone);

 private:
  using Records = std::vector<PackedRecord>;
  using Map = std::unordered_map<Digest, Records, DigestHash>;

  // The digest without its low byte, which the piece implies.
  static Digest key_of(const Digest& digest) { return {digest.hi & ~uint64_t{0xff}, digest.lo}; }
  static Digest key_of(const PackedRecord& record) {
    return {record.hi_above_low_byte() << 8, record.lo()};
  }
  // A map node plus the allocator's overhead for it and the records.
  static constexpr size_t kDigestBytes = 96;

  // Updates the counts after `removed` records were erased from the list at `at`.
  void removed(Map::iterator at, size_t removed);

  std::atomic<size_t> size_{0}, digests_{0};
  Map by_key_;
};

template <typename Gone>
size_t FurtherHolders::remove_if(unsigned low_byte, Gone&& gone) {
  const size_t size_before = size();
  for (auto next = by_key_.begin(); next != by_key_.end();) {
    const auto at = next++;
    const Digest digest{at->first.hi | low_byte, at->first.lo};
    removed(at, std::erase_if(at->second, [&](const PackedRecord& r) { return gone(digest, r); }));
  }
  return size_before - size();
}

}  // namespace peercached
