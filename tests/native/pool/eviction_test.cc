// Eviction: the choice of pages, their order, and no more of them than needed.
#include <algorithm>
#include <random>
#include <thread>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

class PoolEviction : public PageFixture {
 protected:
  // Sets pages of one length from `first` on until one is evicted. Returns the number of sets.
  uint64_t fill(uint64_t first, uint32_t length) {
    const size_t before = evicted_rows().size();
    uint64_t number = first;
    while (evicted_rows().size() == before) set(number++, length);
    return number - first;
  }
};

TEST_F(PoolEviction, LeastRecentlyUsedGoesFirst) {
  open(4 * kMiB);
  const uint64_t count = fill(0, 16 * kKiB);
  EXPECT_EQ(evicted_rows()[0].digest, digest_for(0));
  touch({1});
  set(count + 1, 16 * kKiB);
  EXPECT_TRUE(held(1));
  EXPECT_FALSE(held(2));
}

TEST_F(PoolEviction, RowsWithdrawWithGrowingGenerations) {
  open(2 * kMiB);
  std::map<Digest, RecordRow> rows;
  for (uint64_t i = 0; i < 500; ++i) rows[digest_for(i)] = set(i, 16 * kKiB);
  Generation last = 0;
  ASSERT_GT(evicted_rows().size(), 300u);
  for (const RecordRow& row : evicted_rows()) {
    EXPECT_EQ(row.flags, kRecordWithdraw);
    EXPECT_GT(row.generation, rows[row.digest].generation);
    EXPECT_GT(row.generation, last);
    EXPECT_FALSE(scanned().contains(row.digest));
    last = row.generation;
  }
}

TEST_F(PoolEviction, PinnedPageIsNeverEvicted) {
  open(4 * kMiB);
  set(0, 16 * kKiB);
  const PinnedPage page = pin(0);
  for (uint64_t i = 1; i < 2000; ++i) set(i, i % 7 == 0 ? 256 * kKiB : 16 * kKiB);
  EXPECT_TRUE(held(0));
  EXPECT_TRUE(painted(page.payload(), page.length, 0));
  unpin(page);
  for (uint64_t i = 2000; i < 2300; ++i) set(i, 16 * kKiB);
  EXPECT_FALSE(held(0)) << "its age counts again once it is unpinned";
}

TEST_F(PoolEviction, EvictColdestFreesAtLeastTheBytesAsked) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 200; ++i) set(i, 16 * kKiB);
  touch({0});
  const PinnedPage pinned = pin(1);
  const Evicted left = pool->evict_coldest(100 * 16 * kKiB - 1);
  EXPECT_EQ(left.pages, 100u);
  EXPECT_EQ(left.bytes, 100u * 16 * kKiB);
  EXPECT_EQ(evicted_rows().size(), 100u);
  EXPECT_TRUE(held(0)) << "used last";
  EXPECT_TRUE(held(1)) << "pinned";
  EXPECT_FALSE(held(2));
  EXPECT_TRUE(held(102));
  EXPECT_EQ(pool->evict_coldest(0).pages, 0u);
  EXPECT_EQ(pool->evict_coldest(UINT64_MAX).pages, 99u);
  EXPECT_EQ(pool->stats().keys, 1u);
  unpin(pinned);
}

TEST_F(PoolEviction, EvictRemovesNamedUnpinnedPages) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 200; ++i) set(i, 16 * kKiB);
  const PinnedPage pinned = pin(7);
  std::vector<Digest> named;
  for (uint64_t i = 0; i < 150; ++i) named.push_back(digest_for(i));
  named.push_back(digest_for(999));  // not in the pool
  const Evicted left = pool->evict(named);
  EXPECT_EQ(left.pages, 149u);
  EXPECT_EQ(left.bytes, 149u * 16 * kKiB);
  EXPECT_EQ(evicted_rows().size(), 149u);
  EXPECT_TRUE(held(7));
  EXPECT_TRUE(held(150));
  EXPECT_FALSE(held(149));
  unpin(pinned);
}

TEST_F(PoolEviction, FullyPinnedPoolHasNoSpaceUntilAnUnpin) {
  open(1 * kMiB);
  std::vector<PinnedPage> pages;
  for (uint64_t i = 0;; ++i) {
    const Reservation one = reserve(i, 64 * kKiB);
    if (one.outcome == ReserveOutcome::no_space) break;
    commit(one, i);
    pages.push_back(one.page);
  }
  ASSERT_GE(pages.size(), 14u);
  EXPECT_EQ(reserve(1000, 64 * kKiB).outcome, ReserveOutcome::no_space);
  EXPECT_EQ(reserve(1000, 256 * kKiB).outcome, ReserveOutcome::no_space);
  EXPECT_TRUE(evicted_rows().empty());
  unpin(pages[3]);
  set(1000, 64 * kKiB);
  EXPECT_FALSE(held(3));
  EXPECT_EQ(evicted_rows().size(), 1u);
  pages.erase(pages.begin() + 3);
  pool->unpin(pages);
}

TEST_F(PoolEviction, OversizedBatchReservesAsManyPagesAsFit) {
  open(1 * kMiB);
  std::vector<PageRequest> requests;
  for (uint64_t i = 0; i < 40; ++i) requests.push_back({digest_for(i), 64 * kKiB});
  std::vector<Reservation> out(requests.size());
  pool->reserve(requests, nullptr, 1, out);
  std::vector<PinnedPage> reserved;
  for (const Reservation& one : out) {
    if (one.outcome == ReserveOutcome::reserved)
      reserved.push_back(one.page);
    else
      EXPECT_EQ(one.outcome, ReserveOutcome::no_space);
  }
  EXPECT_GE(reserved.size(), 14u);
  pool->abort(reserved);
  EXPECT_EQ(pool->stats().used_bytes, 0u);
}

TEST_F(PoolEviction, TailOfAChainGoesBeforeItsHead) {
  open(4 * kMiB);
  set_batch({0, 1, 2, 3, 4, 5, 6, 7}, 64 * kKiB);
  for (uint64_t number = 100; held(0); ++number) set(number, 64 * kKiB);
  std::vector<Digest> order;
  for (const RecordRow& row : evicted_rows()) order.push_back(row.digest);
  ASSERT_EQ(order.size(), 8u);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(order[i], digest_for(7 - i));
}

TEST_F(PoolEviction, BatchThatContinuesAChainIsColderThanItsParent) {
  open(4 * kMiB);
  set_batch({0, 1}, 64 * kKiB);
  set(50, 64 * kKiB);
  const Digest parent = digest_for(1);
  set_batch({2, 3}, 64 * kKiB, &parent);
  for (uint64_t number = 100; held(0); ++number) set(number, 64 * kKiB);
  std::vector<Digest> order;
  for (const RecordRow& row : evicted_rows()) order.push_back(row.digest);
  EXPECT_EQ(order,
            (std::vector<Digest>{digest_for(3), digest_for(2), digest_for(1), digest_for(0)}));
  EXPECT_TRUE(held(50)) << "set before the continuation, but no part of that chain";
}

TEST_F(PoolEviction, ReadingAChainKeepsItsHeadTheLongest) {
  open(4 * kMiB);
  for (uint64_t i = 0; i < 6; ++i) set(i, 64 * kKiB);
  touch({0, 1, 2, 3, 4, 5});
  for (uint64_t number = 100; held(0); ++number) set(number, 64 * kKiB);
  const auto rows = evicted_rows();
  ASSERT_GE(rows.size(), 6u);
  const size_t first = rows.size() - 6;
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(rows[first + i].digest, digest_for(5 - i));
}

TEST_F(PoolEviction, PartsCommittedInAnyOrderStillGoTailFirst) {
  open(4 * kMiB);
  std::vector<PageRequest> requests;
  for (uint64_t i = 0; i < 4; ++i) requests.push_back({digest_for(i), 64 * kKiB});
  std::vector<Reservation> out(4);
  pool->reserve(requests, nullptr, 1, out);
  for (uint64_t i : {2, 3, 0, 1}) {
    commit(out[i], i);
    unpin(out[i].page);
  }
  for (uint64_t number = 100; held(0) || held(1); ++number) set(number, 64 * kKiB);
  const auto rows = evicted_rows();
  ASSERT_EQ(rows.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(rows[i].digest, digest_for(3 - i));
}

// With free lists for exact sizes, one page of a new size would flush the whole pool for nothing.
TEST_F(PoolEviction, PageOfANewSizeDoesNotFlushAFullPool) {
  for (uint32_t old_length : {16 * kKiB, 128 * kKiB, 1 * kMiB}) {
    for (uint32_t new_length : {4 * kKiB, 20 * kKiB, 132 * kKiB, 3 * kMiB}) {
      open(64 * kMiB);
      fill(0, old_length);
      const uint64_t keys_before = pool->stats().keys;
      const uint64_t evictions_before = pool->stats().evictions;
      set(1'000'000, new_length);
      const uint64_t evictions = pool->stats().evictions - evictions_before;
      // A span of the new class has at most 1 MiB here, and either end may cut into another span.
      const uint64_t need_bytes = std::max<uint64_t>(new_length, 1 * kMiB) + 2 * kMiB;
      EXPECT_LE(evictions, need_bytes / old_length + 2)
          << old_length << " -> " << new_length << ", of " << keys_before;
      EXPECT_GE(pool->stats().keys, keys_before - evictions);
      pool.reset();
      evicted.clear();
    }
  }
}

TEST_F(PoolEviction, NewSizeTakesTheColdestNeighbours) {
  open(16 * kMiB);
  const uint64_t count = fill(0, 64 * kKiB);
  evicted.clear();
  std::vector<uint64_t> hot;
  for (uint64_t i = count / 2; i < count; ++i) hot.push_back(i);
  touch(hot);
  set(1'000'000, 2 * kMiB);
  for (uint64_t i : hot) EXPECT_TRUE(held(i)) << i;
}

TEST_F(PoolEviction, NewSizeTakesTheColdestNeighboursEvenIfAllPagesWereUsedAgain) {
  open(8 * kMiB);
  uint64_t count = fill(0, 16 * kKiB);
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < count; ++i) order.push_back((i + count / 2) % count);
  for (uint64_t number : order) touch({number});  // the coldest are in the middle of the pool
  const size_t before = evicted_rows().size();
  set(9'999, 512 * kKiB);
  const auto rows = evicted_rows();
  ASSERT_GT(rows.size(), before);
  for (size_t i = before; i < rows.size(); ++i) {
    const auto at = std::ranges::find(order, rows[i].digest, digest_for);
    EXPECT_LT(at - order.begin(), static_cast<ptrdiff_t>(count / 4));
  }
}

TEST_F(PoolEviction, PageLargerThanAnySpanTakesSeveral) {
  open(16 * kMiB);
  fill(0, 16 * kKiB);
  const uint64_t before = pool->stats().evictions;
  set(1'000'000, 8 * kMiB);
  EXPECT_TRUE(held(1'000'000));
  EXPECT_LE(pool->stats().evictions - before, 8 * kMiB / (16 * kKiB) + 64);
}

TEST_F(PoolEviction, WholePoolCanBecomeOnePageAndBack) {
  open(8 * kMiB);
  fill(0, 16 * kKiB);
  const uint32_t whole = 8 * kMiB - 4096;
  set(1'000'000, whole);
  EXPECT_EQ(pool->stats().keys, 1u);
  set(2'000'000, 16 * kKiB);
  EXPECT_FALSE(held(1'000'000));
  fill(2'000'001, 16 * kKiB);
  EXPECT_GT(used(), 0.95);
}

TEST_F(PoolEviction, PinnedPagesAreWalkedAroundByALargePage) {
  open(16 * kMiB);
  const uint64_t count = fill(0, 64 * kKiB);
  std::vector<PinnedPage> pinned;
  for (uint64_t i = 1; i < count / 2; i += 16) pinned.push_back(pin(i));
  set(1'000'000, 4 * kMiB);
  for (uint64_t i = 1; i < count / 2; i += 16) EXPECT_TRUE(held(i));
  pool->unpin(pinned);
}

TEST_F(PoolEviction, ActiveSizeTakesTheRoomOfAnIdleSize) {
  open(32 * kMiB);
  const uint64_t old_pages = fill(0, 64 * kKiB);
  for (uint64_t i = 0; i < 2 * 32 * 8; ++i) set(1'000'000 + i, 128 * kKiB);
  uint64_t left = 0;
  for (uint64_t i = 0; i < old_pages; ++i) left += held(i);
  EXPECT_LE(left, old_pages / 50) << "single ones between spans of the other size may last";
  EXPECT_GT(used(), 0.95);
}

TEST_F(PoolEviction, EndlessNewSizesKeepTheClassesBounded) {
  open(8 * kMiB);
  for (uint32_t i = 0; i < 1500; ++i) set_unpainted(i, (1 + i % 1000) * 4 * kKiB);
  EXPECT_LE(pool->stats().classes.size(), 600u);
  EXPECT_GT(pool->stats().keys, 0u);
}

class PoolChurn : public PoolEviction {
 protected:
  uint32_t random_length() {
    switch (random() % 8) {
      case 0:
        return 4 * kMiB;
      case 1:
      case 2:
        return 1 * kMiB;
      case 3:
        return 128 * kKiB + static_cast<uint32_t>(random() % (64 * kKiB));
      case 4:
      case 5:
        return 128 * kKiB;
      default:
        return 16 * kKiB;
    }
  }
  std::mt19937_64 random{7};
};

TEST_F(PoolChurn, MixedSizesUse95PercentOfThePool) {
  open(256 * kMiB);
  double sum = 0, least = 1;
  int samples = 0;
  for (uint64_t i = 0; i < 6000; ++i) {
    set_unpainted(i, random_length());
    if (i < 2000) continue;
    sum += used();
    least = std::min(least, used());
    ++samples;
  }
  RecordProperty("mean_used_permille", static_cast<int>(1000 * sum / samples));
  EXPECT_GE(sum / samples, 0.95);
  EXPECT_GE(least, 0.93);
}

// Evicting more than needed would raise the evicted bytes above the bytes set.
TEST_F(PoolChurn, EvictedBytesFollowTheBytesSet) {
  open(128 * kMiB);
  uint64_t set_bytes = 0, evicted_bytes = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    const uint32_t length = random_length();
    set_unpainted(i, length);
    set_bytes += length;
  }
  for (const RecordRow& row : evicted_rows()) evicted_bytes += row.length;
  const uint64_t held_bytes = pool->stats().payload_bytes;
  EXPECT_EQ(set_bytes, evicted_bytes + held_bytes);
  EXPECT_GE(held_bytes, 128 * kMiB * 93 / 100);
}

// A page of another size may evict a younger neighbour, but rarely a fresh one.
TEST_F(PoolChurn, EvictedPagesOfMixedSizesAreMostlyOld) {
  open(128 * kMiB);
  std::map<Digest, uint64_t> set_at_bytes;
  uint64_t set_bytes = 0, young = 0;
  size_t seen = 0;
  for (uint64_t i = 0; i < 4000; ++i) {
    const uint32_t length = random_length();
    const RecordRow row = set_unpainted(i, length);
    set_bytes += length;
    set_at_bytes[row.digest] = set_bytes;
    for (const auto rows = evicted_rows(); seen < rows.size(); ++seen)
      if (set_bytes - set_at_bytes[rows[seen].digest] < 128 * kMiB / 4) ++young;
  }
  EXPECT_GT(seen, 2000u);
  EXPECT_LT(young, seen / 12);
}

TEST_F(PoolEviction, BackgroundKeepsBetweenTheWatermarks) {
  open(32 * kMiB, 0.9, 0.8);
  uint64_t number = 0;
  const auto limit = Clock::now() + std::chrono::seconds(60);
  while (used() < 0.88) set(number++, 16 * kKiB);
  EXPECT_TRUE(evicted_rows().empty());
  while (used() <= 0.9 && evicted_rows().empty()) set(number++, 16 * kKiB);
  while (used() > 0.81 && Clock::now() < limit) std::this_thread::yield();
  EXPECT_LE(used(), 0.81);
  EXPECT_GE(used(), 0.79);
  EXPECT_EQ(evicted_rows()[0].digest, digest_for(0));
}

TEST_F(PoolEviction, BackgroundWaitsForPinsAndGoesOnWithTheUnpin) {
  open(4 * kMiB, 0.5, 0.25);
  std::vector<PinnedPage> pages;
  for (uint64_t i = 0; i < 40; ++i) {
    const Reservation one = reserve(i, 64 * kKiB);
    ASSERT_EQ(one.outcome, ReserveOutcome::reserved);
    commit(one, i);
    pages.push_back(one.page);
  }
  EXPECT_TRUE(evicted_rows().empty());
  pool->unpin(pages);
  const auto limit = Clock::now() + std::chrono::seconds(60);
  while (used() > 0.3 && Clock::now() < limit) std::this_thread::yield();
  EXPECT_LE(used(), 0.3);
}

TEST_F(PoolEviction, BackgroundLeavesAPageThatIsMostOfThePool) {
  open(4 * kMiB, 0.9, 0.8);
  set(1, 4 * kMiB - 8192);
  EXPECT_TRUE(held(1));
  set(2, 4 * kMiB - 8192);
  EXPECT_TRUE(held(2));
  EXPECT_FALSE(held(1));
}

}  // namespace
}  // namespace peercached
