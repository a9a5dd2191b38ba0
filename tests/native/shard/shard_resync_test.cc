#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/summary.h"
#include "records.h"
#include "shard/ring.h"
#include "shard/shard.h"

namespace peercached {
namespace {

using test::random_records;
using test::record;
using test::withdrawal;

constexpr HolderIndex kSelf = 1;

Ring two_node_ring() {
  std::mt19937_64 random(9);
  std::vector<uint64_t> positions(40);
  std::generate(positions.begin(), positions.end(), std::ref(random));
  std::sort(positions.begin(), positions.end());
  std::vector<HolderIndex> nodes;
  for (size_t i = 0; i < positions.size(); ++i) nodes.push_back(static_cast<HolderIndex>(i % 2));
  return Ring(positions, nodes, 1);
}

std::vector<BucketSummary> summary_of(const Shard& shard, HolderIndex holder, const Ring& ring) {
  std::vector<BucketSummary> summary(kSummaryBuckets);
  shard.summary(holder, ring, kSelf, summary);
  return summary;
}

std::vector<BucketSummary> summary_of(const std::vector<RecordRow>& rows, const Ring& ring) {
  std::vector<BucketSummary> summary(kSummaryBuckets);
  for (const RecordRow& row : rows) {
    if (!ring.owned_by(row.digest, kSelf)) continue;
    summary[bucket_of(row.digest)].hash += summary_term(row);
    ++summary[bucket_of(row.digest)].count;
  }
  return summary;
}

size_t found(const Shard& shard, const Digest& digest) {
  std::vector<RecordRow> rows;
  shard.lookup(std::span(&digest, 1), rows);
  return rows.size();
}

TEST(ShardResync, SummariesAreEqualExactlyWhenTheRecordsAre) {
  const Ring ring = two_node_ring();
  const auto rows = random_records(3000, 1);
  Shard shard(10'000);
  shard.add_holder(4);
  shard.add_holder(5);
  auto shuffled = rows;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937_64(2));
  shard.apply(4, shuffled);
  shard.apply(5, random_records(500, 3));  // other holders must not count
  EXPECT_EQ(summary_of(shard, 4, ring), summary_of(rows, ring));

  const auto mine = std::find_if(rows.begin(), rows.end(), [&](const RecordRow& row) {
    return ring.owned_by(row.digest, kSelf);
  });
  const auto only_that_bucket_differs = [&] {
    const auto stored = summary_of(shard, 4, ring), given = summary_of(rows, ring);
    for (unsigned bucket = 0; bucket < kSummaryBuckets; ++bucket)
      EXPECT_EQ(stored[bucket] == given[bucket], bucket != bucket_of(mine->digest));
  };
  const RecordRow newer = record(mine->digest, 900'000);
  shard.apply(4, std::span(&newer, 1));
  only_that_bucket_differs();
  const RecordRow gone = withdrawal(mine->digest, 900'000);
  shard.apply(4, std::span(&gone, 1));
  only_that_bucket_differs();
  RecordRow on_disk = *mine;
  on_disk.flags = 0;
  shard.apply(4, std::span(&on_disk, 1));
  only_that_bucket_differs();
}

TEST(ShardResync, ReplacingTheBucketsThatDifferRepairsAnyDifference) {
  const Ring ring = two_node_ring();
  std::mt19937_64 random(1);
  // The holder's records, and the shard's wrong belief: missing, surplus, older, newer (never
  // valid), or with another residency.
  auto truth = random_records(3000, 1);
  std::vector<RecordRow> believed = random_records(300, 2);
  for (const RecordRow& row : truth) {
    switch (random() % 8) {
      case 0:
        break;
      case 1:
        believed.push_back(record(row.digest, row.generation - 1));
        break;
      case 2:
        believed.push_back(record(row.digest, row.generation + 1));
        break;
      case 3:
        believed.push_back(record(row.digest, row.generation, 0));
        break;
      default:
        believed.push_back(row);
    }
  }
  Shard shard(10'000);
  shard.add_holder(4);
  shard.apply(4, believed);

  const auto wanted = summary_of(truth, ring);
  const auto before = summary_of(shard, 4, ring);
  for (unsigned bucket = 0; bucket < kSummaryBuckets; ++bucket) {
    if (before[bucket] == wanted[bucket]) continue;
    std::vector<RecordRow> rows;
    for (const RecordRow& row : truth)
      if (bucket_of(row.digest) == bucket && ring.owned_by(row.digest, kSelf)) rows.push_back(row);
    const auto applied = shard.replace(4, bucket, 10'000, ring, kSelf, rows);
    EXPECT_EQ(applied.bad + applied.full, 0u);
  }
  EXPECT_EQ(summary_of(shard, 4, ring), wanted);
}

TEST(ShardResync, ReplaceLeavesNewerRecordsOtherHoldersAndOtherRangesAlone) {
  const Ring ring = two_node_ring();
  Shard shard(100'000);  // 300 records share one summary bucket
  shard.add_holder(4);
  shard.add_holder(5);
  std::vector<RecordRow> mine, foreign;
  for (RecordRow& row : random_records(4000, 1)) {
    row.digest.hi = (row.digest.hi & ~uint64_t{0xff}) | 0x11;
    auto& list = ring.owned_by(row.digest, kSelf) ? mine : foreign;
    if (list.size() < 100) list.push_back(row);
  }
  for (auto& row : mine) row.generation = 50;
  mine[0].generation = 51;  // published during the holder's scan
  shard.apply(4, mine);
  shard.apply(4, foreign);
  shard.apply(5, mine);
  const auto applied = shard.replace(4, 0x11, 50, ring, kSelf, std::span(mine).subspan(1, 1));
  EXPECT_EQ(applied.withdrawn, 98u);
  EXPECT_EQ(applied.old, 1u);
  EXPECT_EQ(found(shard, mine[0].digest), 2u);
  EXPECT_EQ(found(shard, mine[1].digest), 2u);
  for (size_t i = 2; i < mine.size(); ++i) EXPECT_EQ(found(shard, mine[i].digest), 1u);
  for (const auto& row : foreign) EXPECT_EQ(found(shard, row.digest), 1u);
}

TEST(ShardResync, ReplaceRefusesRowsOfOtherBucketsAndWithdrawals) {
  const Ring ring = two_node_ring();
  Shard shard(1000);
  shard.add_holder(4);
  const std::vector<RecordRow> rows{record({0x10, 1}, 1), record({0x11, 2}, 2),
                                    withdrawal({0x11, 3}, 3)};
  const auto applied = shard.replace(4, 0x11, 10, ring, kSelf, rows);
  EXPECT_EQ(applied.added, 1u);
  EXPECT_EQ(applied.bad, 2u);
  EXPECT_EQ(shard.replace(4, 256, 10, ring, kSelf, rows).bad, 3u);
  EXPECT_EQ(shard.replace(9, 0x11, 10, ring, kSelf, rows).bad, 3u) << "no such holder";
}

TEST(ShardResync, TrimDropsRecordsNotOwnedInTheNewView) {
  const Ring ring = two_node_ring();
  Shard shard(100'000);
  shard.add_holder(4);
  const auto rows = random_records(20'000, 1);
  shard.apply(4, rows);
  size_t foreign = 0;
  for (const auto& row : rows) foreign += !ring.owned_by(row.digest, kSelf);
  EXPECT_GT(foreign, 1000u);
  EXPECT_EQ(shard.trim(ring, kSelf), foreign);
  for (const auto& row : rows)
    ASSERT_EQ(found(shard, row.digest), ring.owned_by(row.digest, kSelf) ? 1u : 0u);
  EXPECT_EQ(shard.stats().entries, rows.size() - foreign);
  EXPECT_EQ(shard.trim(ring, kSelf), 0u);
}

}  // namespace
}  // namespace peercached
