// Records for the shard's tests, reproducible from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "common/types.h"
#include "shard/shard.h"

namespace peercached {

inline Digest random_digest(std::mt19937_64& random) { return {random(), random()}; }

inline RecordRow record(const Digest& digest, Generation generation,
                        uint8_t flags = kRecordResident) {
  RecordRow row;
  row.digest = digest;
  row.generation = generation;
  row.offset = generation * 4160 % (uint64_t{1} << 44) / 64 * 64;
  row.length = 4096 + static_cast<uint32_t>(generation % 1000);
  row.check = static_cast<uint32_t>(digest.lo ^ generation);
  row.flags = flags;
  return row;
}

inline RecordRow withdrawal(const Digest& digest, Generation generation) {
  return record(digest, generation, kRecordWithdraw);
}

inline std::vector<RecordRow> random_records(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<RecordRow> rows;
  rows.reserve(count);
  for (size_t i = 0; i < count; ++i) rows.push_back(record(random_digest(random), i + 1));
  return rows;
}

// Records of one piece of a table of 4 million records. The colliding ones share their places, and
// fit while the piece is large. When others are withdrawn, it shrinks, and they fit no more.
struct CrowdedPiece {
  std::vector<RecordRow> others, colliding;

  CrowdedPiece() {
    std::mt19937_64 random(1);
    for (uint64_t i = 1; i <= 6700; ++i) others.push_back(record({random() << 8, random()}, i));
    for (uint64_t i = 1; i <= 440; ++i) colliding.push_back(record({0, random()}, i));
  }
  std::vector<RecordRow> withdrawals() const {
    std::vector<RecordRow> rows(others.begin() + 3960, others.end());
    for (RecordRow& row : rows) row.flags = kRecordWithdraw;
    return rows;
  }
};

// A table that knows these holders.
struct ShardOf : Shard {
  ShardOf(size_t capacity_entries, std::initializer_list<HolderIndex> holders)
      : Shard(capacity_entries) {
    for (HolderIndex holder : holders) add_holder(holder);
  }
};

}  // namespace peercached
