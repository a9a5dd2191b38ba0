#include "shard/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>

#include "records.h"

namespace peercached {
namespace {

std::vector<RecordRow> lookup(const Shard& shard, const Digest& digest) {
  std::vector<RecordRow> rows;
  shard.lookup(std::span(&digest, 1), rows);
  return rows;
}

std::set<HolderIndex> holders_of(const Shard& shard, const Digest& digest) {
  std::set<HolderIndex> holders;
  for (const RecordRow& row : lookup(shard, digest)) holders.insert(row.holder);
  return holders;
}

ShardApplied apply(Shard& shard, HolderIndex holder, const RecordRow& row) {
  return shard.apply(holder, std::span(&row, 1));
}

void sweep_all(Shard& shard) {
  while (shard.sweep(100) > 0) {
  }
}

constexpr Digest kDigest{0x1111111111111111, 0x2222222222222222};

TEST(Shard, ARecordIsFoundAsItWasGiven) {
  ShardOf shard(1000, {7});
  const RecordRow given = record(kDigest, 5);
  EXPECT_EQ(apply(shard, 7, given).added, 1u);
  const auto rows = lookup(shard, kDigest);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].digest, given.digest);
  EXPECT_EQ(rows[0].offset, given.offset);
  EXPECT_EQ(rows[0].generation, given.generation);
  EXPECT_EQ(rows[0].length, given.length);
  EXPECT_EQ(rows[0].check, given.check);
  EXPECT_EQ(rows[0].flags, given.flags);
  EXPECT_EQ(rows[0].holder, 7);
}

TEST(Shard, DigestsThatDifferInAnyByteAreDifferent) {
  ShardOf shard(1000, {1});
  apply(shard, 1, record(kDigest, 1));
  for (unsigned bit = 0; bit < 64; ++bit) {
    EXPECT_TRUE(lookup(shard, {kDigest.hi ^ uint64_t{1} << bit, kDigest.lo}).empty()) << bit;
    EXPECT_TRUE(lookup(shard, {kDigest.hi, kDigest.lo ^ uint64_t{1} << bit}).empty()) << bit;
  }
}

TEST(Shard, LookupAnswersInTheOrderOfTheDigests) {
  ShardOf shard(10'000, {1, 2});
  const auto rows = random_records(2000, 1);
  shard.apply(1, rows);
  shard.apply(2, std::span(rows).first(1000));
  std::mt19937_64 random(2);
  std::vector<Digest> asked;
  for (int i = 0; i < 500; ++i)
    asked.push_back(i % 3 == 0 ? random_digest(random) : rows[random() % rows.size()].digest);
  std::vector<RecordRow> found{record(kDigest, 99)};
  shard.lookup(asked, found);
  ASSERT_EQ(found[0].digest, kDigest) << "the earlier row is gone";
  size_t at = 1;
  for (const Digest& digest : asked)
    for (const RecordRow& row : lookup(shard, digest)) {
      ASSERT_LT(at, found.size());
      EXPECT_EQ(found[at].digest, row.digest);
      EXPECT_EQ(found[at].holder, row.holder);
      ++at;
    }
  EXPECT_EQ(at, found.size());
}

TEST(Shard, AnOlderGenerationNeverWins) {
  ShardOf shard(1000, {1});
  apply(shard, 1, record(kDigest, 5));
  EXPECT_EQ(apply(shard, 1, record(kDigest, 4)).old, 1u);
  EXPECT_EQ(apply(shard, 1, record(kDigest, 5)).old, 1u);
  EXPECT_EQ(apply(shard, 1, withdrawal(kDigest, 4)).old, 1u);
  EXPECT_EQ(lookup(shard, kDigest)[0].generation, 5u);
  EXPECT_EQ(apply(shard, 1, record(kDigest, 6, 0)).changed, 1u);
  EXPECT_EQ(lookup(shard, kDigest)[0].generation, 6u);
  EXPECT_EQ(lookup(shard, kDigest)[0].flags, 0);
  EXPECT_EQ(apply(shard, 1, withdrawal(kDigest, 6)).withdrawn, 1u);
  EXPECT_TRUE(lookup(shard, kDigest).empty());
  EXPECT_EQ(apply(shard, 1, withdrawal(kDigest, 7)).old, 1u) << "not there";
}

TEST(Shard, RowsOfOneBatchCountInTheirOrder) {
  ShardOf shard(1000, {1});
  const std::vector<RecordRow> rows{record(kDigest, 1), withdrawal(kDigest, 2), record(kDigest, 3),
                                    record(kDigest, 2)};
  const auto applied = shard.apply(1, rows);
  EXPECT_EQ(applied.added, 2u);
  EXPECT_EQ(applied.withdrawn, 1u);
  EXPECT_EQ(applied.old, 1u);
  EXPECT_EQ(lookup(shard, kDigest)[0].generation, 3u);
}

TEST(Shard, AHolderChangesOnlyItsOwnRecords) {
  ShardOf shard(1000, {1, 2});
  RecordRow claim = record(kDigest, 100);
  apply(shard, 1, record(kDigest, 5));
  claim.holder = 1;  // claims holder 1, but comes from holder 2
  EXPECT_EQ(apply(shard, 2, claim).added, 1u);
  EXPECT_EQ(apply(shard, 2, withdrawal(kDigest, 200)).withdrawn, 1u);
  const auto rows = lookup(shard, kDigest);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].holder, 1);
  EXPECT_EQ(rows[0].generation, 5u);
}

TEST(Shard, ThreeOfManyHoldersAreNamedAndAllAreKept) {
  Shard shard(1000);
  for (HolderIndex holder = 1; holder <= 6; ++holder) shard.add_holder(holder);
  for (HolderIndex holder = 1; holder <= 6; ++holder)
    EXPECT_EQ(apply(shard, holder, record(kDigest, 10)).added, 1u);
  EXPECT_EQ(shard.stats().entries, 6u);
  std::set<HolderIndex> left{1, 2, 3, 4, 5, 6};
  // Each named holder leaves, and another must be named until none is left.
  for (size_t size = 6; size > 0; --size) {
    const auto named = holders_of(shard, kDigest);
    ASSERT_TRUE(std::ranges::includes(left, named));
    // Until a sweep, dead holders may hide further ones.
    ASSERT_GE(named.size(), 1u);
    if (size % 3 == 0) {
      sweep_all(shard);
      ASSERT_EQ(holders_of(shard, kDigest).size(), 3u);
    }
    const HolderIndex holder = *named.begin();
    if (size % 2)
      EXPECT_EQ(apply(shard, holder, withdrawal(kDigest, 10)).withdrawn, 1u);
    else
      shard.drop_holder(holder);
    left.erase(holder);
    EXPECT_EQ(shard.stats().entries, size - 1);
  }
  EXPECT_TRUE(lookup(shard, kDigest).empty());
  sweep_all(shard);
  for (HolderIndex holder = 1; holder <= 6; ++holder) {
    shard.drop_holder(holder);
    EXPECT_TRUE(shard.swept(holder)) << holder;
  }
}

TEST(Shard, FourthHolderCanChangeAndWithdrawItsRecord) {
  Shard shard(1000);
  for (HolderIndex holder = 1; holder <= 4; ++holder) {
    shard.add_holder(holder);
    apply(shard, holder, record(kDigest, 10));
  }
  EXPECT_EQ(apply(shard, 4, record(kDigest, 10)).old, 1u);
  EXPECT_EQ(apply(shard, 4, record(kDigest, 20)).changed, 1u);
  EXPECT_EQ(apply(shard, 4, withdrawal(kDigest, 19)).old, 1u);
  for (HolderIndex holder = 1; holder <= 3; ++holder) shard.drop_holder(holder);
  auto rows = lookup(shard, kDigest);
  ASSERT_EQ(rows.size(), 1u) << "before any sweep";
  EXPECT_EQ(rows[0].holder, 4);
  EXPECT_EQ(rows[0].generation, 20u);
  sweep_all(shard);
  EXPECT_EQ(holders_of(shard, kDigest), std::set<HolderIndex>{4});
  for (HolderIndex holder = 1; holder <= 3; ++holder) {
    shard.add_holder(holder);
    apply(shard, holder, record(kDigest, 10));
  }
  EXPECT_EQ(apply(shard, 4, withdrawal(kDigest, 20)).withdrawn, 1u);
  EXPECT_EQ(holders_of(shard, kDigest), (std::set<HolderIndex>{1, 2, 3}));
  EXPECT_EQ(shard.stats().entries, 3u);
}

// Holders 1 and 2 are dead when 6 comes. The sweep puts 4 and 5 in their places: four are in the
// table.
TEST(Shard, AllHoldersAreFoundWhereDeadOnesWereReplaced) {
  Shard shard(1000);
  for (HolderIndex holder = 1; holder <= 6; ++holder) shard.add_holder(holder);
  for (HolderIndex holder = 1; holder <= 5; ++holder) apply(shard, holder, record(kDigest, 10));
  shard.drop_holder(1);
  shard.drop_holder(2);
  apply(shard, 6, record(kDigest, 10));
  sweep_all(shard);
  std::vector<RecordRow> rows;
  shard.lookup_all(std::span(&kDigest, 1), rows);
  std::set<HolderIndex> holders;
  for (const RecordRow& row : rows) holders.insert(row.holder);
  EXPECT_EQ(holders, (std::set<HolderIndex>{3, 4, 5, 6}));
  EXPECT_EQ(rows.size(), 4u);
}

TEST(Shard, WidelyHeldPagesSurviveTableGrowthAndShrinking) {
  constexpr HolderIndex kHolders = 20;
  Shard shard(200'000);
  const auto hot = random_records(1000, 1);
  for (HolderIndex holder = 1; holder <= kHolders; ++holder) {
    shard.add_holder(holder);
    EXPECT_EQ(shard.apply(holder, hot).added, hot.size());
  }
  EXPECT_EQ(shard.stats().entries, kHolders * hot.size());
  EXPECT_LT(shard.stats().bytes, kHolders * hot.size() * 48 + 256 * 2 * 4096 + hot.size() * 100);
  // The table's named holders die. Later records rebuild it many times before any sweep.
  for (HolderIndex holder = 1; holder <= 3; ++holder) shard.drop_holder(holder);
  auto others = random_records(100'000, 2);
  for (size_t at = 0; at < others.size(); at += 500)
    shard.apply(kHolders, std::span(others).subspan(at, 500));
  for (const RecordRow& row : hot) ASSERT_EQ(lookup(shard, row.digest).size(), 3u);
  for (auto& row : others) row.flags = kRecordWithdraw;
  shard.apply(kHolders, others);
  sweep_all(shard);
  for (HolderIndex holder = 1; holder <= 3; ++holder) EXPECT_TRUE(shard.swept(holder));
  for (HolderIndex holder = 4; holder < kHolders; ++holder) shard.drop_holder(holder);
  for (const RecordRow& row : hot)
    ASSERT_EQ(holders_of(shard, row.digest), std::set<HolderIndex>{kHolders});
  sweep_all(shard);
  for (HolderIndex holder = 4; holder < kHolders; ++holder) EXPECT_TRUE(shard.swept(holder));
  EXPECT_EQ(shard.stats().entries, hot.size());
  for (const RecordRow& row : hot)
    ASSERT_EQ(holders_of(shard, row.digest), std::set<HolderIndex>{kHolders});
}

TEST(Shard, ADroppedHolderIsGoneAtOnceAndForEver) {
  ShardOf shard(10'000, {1, 2});
  const auto rows = random_records(3000, 1);
  shard.apply(1, rows);
  shard.apply(2, std::span(rows).first(1000));
  shard.drop_holder(1);
  EXPECT_EQ(shard.stats().entries, 1000u);
  EXPECT_EQ(shard.stats().dead_entries, 3000u);
  for (size_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(holders_of(shard, rows[i].digest),
              i < 1000 ? std::set<HolderIndex>{2} : std::set<HolderIndex>{});
  EXPECT_EQ(apply(shard, 1, record(kDigest, 9999)).bad, 1u);

  EXPECT_FALSE(shard.swept(1));
  EXPECT_THROW(shard.add_holder(1), std::invalid_argument);
  EXPECT_GT(shard.sweep(1), 0u);
  sweep_all(shard);
  EXPECT_EQ(shard.stats().dead_entries, 0u);
  EXPECT_EQ(shard.stats().entries, 1000u);
  ASSERT_TRUE(shard.swept(1));
  shard.add_holder(1);
  EXPECT_FALSE(shard.swept(1));
  for (size_t i = 1000; i < rows.size(); ++i) ASSERT_TRUE(lookup(shard, rows[i].digest).empty());
  // An old generation of the former holder must not block the new one's record.
  EXPECT_EQ(apply(shard, 1, record(rows[0].digest, 1)).added, 1u);
}

TEST(Shard, AnIndexInUseIsNotGivenTwice) {
  ShardOf shard(10, {3});
  EXPECT_THROW(shard.add_holder(3), std::invalid_argument);
  EXPECT_THROW(shard.add_holder(kNoHolder), std::invalid_argument);
  shard.drop_holder(3);
  shard.drop_holder(3);  // no effect
  EXPECT_TRUE(shard.swept(3));
  shard.add_holder(3);
}

TEST(Shard, DeadRecordsMakeRoomWithoutASweep) {
  constexpr size_t kCapacity = 50'000;
  Shard shard(kCapacity);
  for (HolderIndex life = 1; life <= 4; ++life) {
    shard.add_holder(life);
    EXPECT_EQ(shard.apply(life, random_records(kCapacity, life)).added, kCapacity);
    EXPECT_EQ(shard.stats().entries, kCapacity);
    shard.drop_holder(life);
  }
  EXPECT_LT(shard.stats().bytes, kCapacity * 64u + 256 * 4096);
}

TEST(Shard, AFullTableRefusesAndCounts) {
  ShardOf shard(1000, {1, 2});
  const auto rows = random_records(1500, 1);
  auto applied = shard.apply(1, rows);
  EXPECT_EQ(applied.added, 1000u);
  EXPECT_EQ(applied.full, 500u);
  EXPECT_EQ(shard.stats().full, 500u);
  EXPECT_EQ(shard.stats().entries, 1000u);
  EXPECT_EQ(apply(shard, 2, record(kDigest, 1)).full, 1u);
  // Existing records can still change and be withdrawn, which makes room.
  for (const RecordRow& row : rows) {
    if (lookup(shard, row.digest).empty()) continue;
    EXPECT_EQ(apply(shard, 1, record(row.digest, 5000)).changed, 1u);
    EXPECT_EQ(apply(shard, 1, withdrawal(row.digest, 5000)).withdrawn, 1u);
    break;
  }
  EXPECT_EQ(apply(shard, 2, record(kDigest, 1)).added, 1u);
  EXPECT_EQ(apply(shard, 2, record({5, 6}, 1)).full, 1u);
}

TEST(Shard, TableTakesAsManyRecordsAsItsCapacity) {
  for (size_t capacity : {1u, 255u, 4000u, 120'000u}) {
    ShardOf shard(capacity, {1});
    const auto rows = random_records(capacity, capacity);
    EXPECT_EQ(shard.apply(1, rows).added, capacity);
    std::vector<Digest> digests;
    for (const auto& row : rows) digests.push_back(row.digest);
    std::vector<RecordRow> found;
    shard.lookup(digests, found);
    EXPECT_EQ(found.size(), capacity);
  }
}

TEST(Shard, RecordsCost48BytesAtMost) {
  constexpr size_t kRecords = 300'000;
  ShardOf shard(2'000'000, {1});
  const auto rows = random_records(kRecords, 1);
  for (size_t at = 0; at < kRecords; at += 5000) {
    shard.apply(1, std::span(rows).subspan(at, 5000));
    const auto stats = shard.stats();
    if (stats.entries < 100'000) continue;
    // A small table also needs a memory page for each piece.
    ASSERT_LE(stats.bytes, 48 * stats.entries + 256 * 4096) << stats.entries;
  }
}

TEST(Shard, LargePiecesGetRoomInSweepsBeforeUpdatesNeedIt) {
  constexpr size_t kBatch = 2500;
  size_t calls = 0;
  Shard shard(2'000'000, [&] { ++calls; });
  shard.add_holder(1);
  const auto rows = random_records(900'000, 1);
  size_t grown_in_updates = 0, grown_in_sweeps = 0;  // batches and sweeps that grew a piece
  for (size_t at = 0; at < rows.size(); at += kBatch) {
    const uint64_t bytes_before = shard.stats().index_bytes;
    const size_t calls_before = calls;
    shard.apply(1, std::span(rows).subspan(at, kBatch));
    const uint64_t bytes = shard.stats().index_bytes;
    sweep_all(shard);
    if (at < 500'000) continue;  // small pieces do not grow ahead
    grown_in_updates += bytes > bytes_before;
    if (shard.stats().index_bytes > bytes) {
      ++grown_in_sweeps;
      EXPECT_EQ(calls, calls_before + 1);
    }
    EXPECT_LE(shard.stats().bytes, 48 * shard.stats().entries) << at;
  }
  // Occasionally a record finds no slot within reach, which a sweep cannot foresee.
  EXPECT_LT(grown_in_updates, grown_in_sweeps / 10);
  EXPECT_GT(grown_in_sweeps, 100u);
  EXPECT_EQ(shard.stats().entries, rows.size());

  std::vector<Digest> digests;
  for (const RecordRow& row : rows) digests.push_back(row.digest);
  std::vector<RecordRow> found;
  shard.lookup(digests, found);
  EXPECT_EQ(found.size(), rows.size());
}

TEST(Shard, LargePiecesGetMemoryInSweepsBeforeRecordsNeedIt) {
  constexpr size_t kRecords = 600'000;
  ShardOf shard(kRecords, {1});
  auto rows = random_records(kRecords, 1);
  shard.apply(1, rows);  // the index has its final size
  const auto some = std::span(rows).first(kRecords / 2);
  for (auto& row : some) row.flags = kRecordWithdraw;
  shard.apply(1, some);
  for (auto& row : some) row.flags = kRecordResident;
  size_t at = 10'000;
  shard.apply(1, some.first(at));
  while (at < some.size()) {
    sweep_all(shard);
    const uint64_t bytes = shard.stats().bytes;
    // A sweep prefaults 1/64 more cells per piece. Use a quarter of it: pieces fill unevenly.
    const size_t batch = std::min(shard.stats().entries / 256, some.size() - at);
    shard.apply(1, some.subspan(at, batch));
    at += batch;
    EXPECT_EQ(shard.stats().bytes, bytes) << at;
  }
  EXPECT_EQ(shard.stats().entries, kRecords);
}

TEST(Shard, DroppedHolderTriggersTheSweepCallback) {
  size_t calls = 0;
  Shard shard(1000, [&] { ++calls; });
  shard.add_holder(1);
  shard.apply(1, random_records(100, 1));
  EXPECT_EQ(calls, 0u);
  shard.drop_holder(1);
  EXPECT_EQ(calls, 1u);
}

TEST(Shard, MemoryGoesBackWhenRecordsGo) {
  ShardOf shard(300'000, {1, 2});
  shard.apply(1, random_records(100'000, 1));
  auto rows = random_records(100'000, 2);
  shard.apply(2, rows);
  const uint64_t bytes_full = shard.stats().bytes;
  shard.drop_holder(1);
  sweep_all(shard);
  EXPECT_LT(shard.stats().bytes, bytes_full * 3 / 4);
  for (auto& row : rows) row.flags = kRecordWithdraw;
  shard.apply(2, rows);
  EXPECT_EQ(shard.stats().entries, 0u);
  EXPECT_LT(shard.stats().bytes, bytes_full / 4);
}

TEST(Shard, DigestsMadeToCollideCannotGrowTheTableWithoutBound) {
  ShardOf shard(1'000'000, {1});
  std::mt19937_64 random(1);
  std::vector<RecordRow> rows;
  for (int i = 0; i < 20'000; ++i) rows.push_back(record({0x42, random()}, i + 1));
  const auto applied = shard.apply(1, rows);
  EXPECT_EQ(applied.added + applied.full, rows.size());
  EXPECT_GT(applied.full, 0u);
  EXPECT_LT(shard.stats().bytes, 3'000'000u);
  // Other digests suffer only if they happen to fall into the same place. Accepted ones are found.
  EXPECT_LT(shard.apply(1, random_records(100'000, 2)).full, 1000u);
  size_t found = 0;
  for (const auto& row : rows) found += lookup(shard, row.digest).size();
  EXPECT_EQ(found, applied.added);
}

TEST(Shard, RecordsOfASmallPieceReachAllItsBuckets) {
  ShardOf shard(100'000, {1});
  std::mt19937_64 random(1);
  // The piece grows to 24 buckets, and these go around in steps of 3: home after 8 buckets.
  std::vector<RecordRow> rows;
  for (int i = 0; i < 300; ++i) rows.push_back(record({0x18'00000001, random()}, i + 1));
  EXPECT_EQ(shard.apply(1, rows).added, rows.size());
  for (const RecordRow& row : rows) ASSERT_EQ(lookup(shard, row.digest).size(), 1u);
}

TEST(Shard, LostRecordEndsItsHolderAndNoOther) {
  ShardOf shard(4'000'000, {1, 2});
  const CrowdedPiece crowded;
  EXPECT_EQ(shard.apply(1, crowded.others).added, crowded.others.size());
  EXPECT_EQ(shard.apply(2, crowded.colliding).added, crowded.colliding.size());
  const auto applied = shard.apply(1, crowded.withdrawals());
  EXPECT_EQ(applied.withdrawn, crowded.withdrawals().size());
  EXPECT_EQ(applied.full, 0u) << "all its rows were taken";
  EXPECT_GT(shard.stats().full, 0u);
  EXPECT_FALSE(shard.live(2));
  EXPECT_TRUE(shard.live(1));
  EXPECT_EQ(shard.stats().entries, crowded.others.size() - crowded.withdrawals().size());
  for (const RecordRow& row : crowded.colliding) ASSERT_TRUE(lookup(shard, row.digest).empty());
  shard.drop_holder(2);
  sweep_all(shard);
  EXPECT_TRUE(shard.swept(2));
}

TEST(Shard, BadRowsAreRefusedAndCountedAndTheRestTaken) {
  ShardOf shard(1000, {1});
  std::vector<RecordRow> rows = random_records(5, 1);
  rows[1].offset += 1;
  rows[3].length = 0;
  const auto applied = shard.apply(1, rows);
  EXPECT_EQ(applied.added, 3u);
  EXPECT_EQ(applied.bad, 2u);
  EXPECT_EQ(shard.stats().bad, 2u);
  EXPECT_TRUE(lookup(shard, rows[1].digest).empty());
  EXPECT_EQ(apply(shard, 2, rows[0]).bad, 1u) << "nobody said that 2 exists";
}

TEST(Shard, AnImpossibleCapacityIsRefused) {
  EXPECT_THROW(Shard(0), std::invalid_argument);
  EXPECT_THROW(Shard(Shard::kCapacityEntriesMax + 1), std::invalid_argument);
}

TEST(Shard, StatsCountAddsChangesAndLookups) {
  ShardOf shard(1000, {1});
  shard.apply(1, random_records(10, 1));
  shard.apply(1, random_records(10, 1));
  apply(shard, 1, record(kDigest, 1));
  apply(shard, 1, record(kDigest, 2));
  lookup(shard, kDigest);
  lookup(shard, {1, 1});
  const auto stats = shard.stats();
  EXPECT_EQ(stats.added, 11u);
  EXPECT_EQ(stats.old, 10u);
  EXPECT_EQ(stats.changed, 1u);
  EXPECT_EQ(stats.entries, 11u);
  EXPECT_EQ(stats.capacity_entries, 1000u);
  EXPECT_EQ(stats.lookups, 2u);
  EXPECT_EQ(stats.hits, 1u);
}

}  // namespace
}  // namespace peercached
