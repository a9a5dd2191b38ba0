// Who else holds a page that three hold already; for one piece of the directory table.
//
// Lookups return three holders at most, and only their records are in the table: all records of a
// digest have one way through the index, and a page that every node holds would fill it up. The
// others wait here, and when a record leaves the table, one of these takes its place. So as long
// as there is any, the table has a record of the digest, live or dead.
//
// Needs the piece's mutex, but for the statistics and empty(), which is a guess then.
#pragma once

#include <atomic>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "common/types.h"
#include "shard/holder_table.h"
#include "shard/packed_record.h"
#include "shard/shard.h"

namespace peercached {

class FurtherHolders {
 public:
  bool empty() const { return size() == 0; }
  size_t size() const { return size_.load(std::memory_order_relaxed); }  // records
  // Of memory, about.
  size_t bytes() const {
    return size() * sizeof(PackedRecord) + digests_.load(std::memory_order_relaxed) * kDigestBytes;
  }

  // nullptr: it is none of them.
  PackedRecord* find(const Digest& digest, HolderIndex holder);
  // The live ones, three at most; returns how many.
  unsigned read(const Digest& digest, const HolderTable& holders,
                RecordRow out[kHoldersPerDigestMax]) const;
  void add(const PackedRecord& record);
  void remove(const PackedRecord& record);
  // Takes out the newest live one of the same digest as `gone`; false if there is none. Dead ones
  // that it meets are removed and accounted for.
  bool take(const PackedRecord& gone, HolderTable& holders, PackedRecord& taken);
  // Of the same digest as `gone`; returns how many live ones that were, after accounting for all.
  uint32_t remove_all(const PackedRecord& gone, HolderTable& holders);

  // visit(const Digest&, const PackedRecord&). `low_byte` is that of the piece's digests.
  template <typename Visit>
  void for_each(unsigned low_byte, Visit&& visit) const {
    for (const auto& [key, records] : by_key_)
      for (const PackedRecord& record : records) visit(Digest{key.hi | low_byte, key.lo}, record);
  }
  // Removes those for which gone(const Digest&, const PackedRecord&); returns how many. The caller
  // accounts for them.
  template <typename Gone>
  size_t remove_if(unsigned low_byte, Gone&& gone);

 private:
  using Records = std::vector<PackedRecord>;
  using Map = std::unordered_map<Digest, Records, DigestHash>;

  // All but the low byte of the digest, which the piece implies.
  static Digest key_of(const Digest& digest) { return {digest.hi & ~uint64_t{0xff}, digest.lo}; }
  static Digest key_of(const PackedRecord& record) {
    return {record.hi_above_low_byte() << 8, record.lo()};
  }
  // A node of the map and what the allocator puts around it and the records.
  static constexpr size_t kDigestBytes = 96;

  // Counts `removed` records that are gone from there already.
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
