#include "shard/packed_record.h"

#include <gtest/gtest.h>

#include <random>

#include "records.h"

namespace peercached {
namespace {

TEST(PackedRecord, EveryFieldSurvivesAtItsLimits) {
  std::mt19937_64 random(1);
  for (uint64_t generation : {uint64_t{0}, uint64_t{1}, PackedRecord::kGenerationMax}) {
    for (uint64_t offset : {uint64_t{0}, uint64_t{64}, PackedRecord::kOffsetBytesMax}) {
      for (uint32_t length : {1u, kPageBytesMax}) {
        for (uint8_t flags : {0, int{kRecordResident}}) {
          for (HolderIndex holder : {0, 1, 0xfffe}) {
            RecordRow row;
            row.digest = random_digest(random);
            row.generation = generation;
            row.offset = offset;
            row.length = length;
            row.check = static_cast<uint32_t>(random());
            row.flags = flags;
            ASSERT_TRUE(PackedRecord::representable(row));
            const PackedRecord packed = PackedRecord::of(row, holder);
            const RecordRow back = packed.row();
            EXPECT_EQ(packed.hi_above_low_byte(), row.digest.hi >> 8);
            EXPECT_EQ(back.generation, generation);
            EXPECT_EQ(back.offset, offset);
            EXPECT_EQ(back.length, length);
            EXPECT_EQ(back.check, row.check);
            EXPECT_EQ(back.flags, flags);
            EXPECT_EQ(back.holder, holder);
          }
        }
      }
    }
  }
}

TEST(PackedRecord, OutOfRangeRecordIsNotRepresentable) {
  const RecordRow good = record({1, 2}, 3);
  const auto with = [&](auto change) {
    RecordRow row = good;
    change(row);
    return PackedRecord::representable(row);
  };
  EXPECT_TRUE(with([](RecordRow&) {}));
  EXPECT_FALSE(with([](RecordRow& row) { row.offset = 65; }));
  EXPECT_FALSE(with([](RecordRow& row) { row.offset = PackedRecord::kOffsetBytesMax + 64; }));
  EXPECT_FALSE(with([](RecordRow& row) { row.length = 0; }));
  EXPECT_FALSE(with([](RecordRow& row) { row.length = kPageBytesMax + 1; }));
  EXPECT_FALSE(with([](RecordRow& row) { row.generation = PackedRecord::kGenerationMax + 1; }));
  EXPECT_FALSE(with([](RecordRow& row) { row.flags = 4; }));
  // A withdrawal has no place in the pool.
  EXPECT_TRUE(with([](RecordRow& row) { row = {.digest = {1, 2}, .flags = kRecordWithdraw}; }));
}

}  // namespace
}  // namespace peercached
