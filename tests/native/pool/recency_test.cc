// Eviction order of chains that are read in part, and of pages last used on another node.
#include <cstdint>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kPage = 16 * kKiB;
constexpr uint32_t kLongAgo = UINT32_MAX;

class PoolRecency : public PageFixture {
 protected:
  // Adopts pages that another node last used `idle_ms` ago.
  void adopt(const std::vector<uint64_t>& numbers, uint32_t idle_ms) {
    for (uint64_t number : numbers) {
      const Reservation reservation = reserve(number, kPage);
      ASSERT_EQ(reservation.outcome, ReserveOutcome::reserved);
      RecordRow row;
      pool->commit({&reservation.page, 1}, {&row, 1}, Adoption{idle_ms});
      unpin(reservation.page);
    }
  }
  // Sets pages that another pool has, too.
  void set_duplicates(const std::vector<uint64_t>& numbers) {
    std::vector<PinnedPage> pages;
    for (uint64_t number : numbers) pages.push_back(reserve(number, kPage).page);
    std::vector<RecordRow> rows(pages.size());
    pool->commit(pages, rows, {}, std::vector<uint8_t>(pages.size(), 1));
    for (const PinnedPage& page : pages) unpin(page);
  }
  // Waits until a page set now counts as younger than the pool.
  void let_a_moment_pass() {
    const TimePoint until = Clock::now() + std::chrono::milliseconds(5);
    while (Clock::now() < until) {
    }
  }
  void expect_evicted_before(const std::vector<uint64_t>& first,
                             const std::vector<uint64_t>& others) {
    pool->evict_coldest(first.size() * kPage);
    for (uint64_t number : first) EXPECT_FALSE(held(number)) << "page " << number;
    for (uint64_t number : others) EXPECT_TRUE(held(number)) << "page " << number;
  }
};

TEST_F(PoolRecency, PagesInUseStayWhenTheirParentIsAlsoInUse) {
  open(4 * kMiB);
  const Digest last = digest_for(7);
  set(7, kPage);
  set_batch({1, 2, 3, 4, 5, 6}, kPage, &last);
  for (uint64_t i = 100; i < 2000; ++i) {
    set(i, kPage);
    touch({1, 2, 3, 4, 5, 6, 7});
    ASSERT_TRUE(held(1)) << "after page " << i;
    ASSERT_TRUE(held(7)) << "after page " << i;
  }
}

TEST_F(PoolRecency, ChainTailInUseStaysWhenItsHeadIsUnused) {
  open(4 * kMiB);
  set_batch({0, 1, 2, 3}, kPage);
  for (uint64_t i = 100; i < 2000; ++i) {
    set(i, kPage);
    touch({2, 3});
    ASSERT_TRUE(held(2)) << "after page " << i;
  }
  EXPECT_FALSE(held(0));
}

TEST_F(PoolRecency, PageUsedAgainOutlivesOnePoolOfNewPagesButNotTwo) {
  open(4 * kMiB);
  set(1, kPage);
  set(2, kPage);
  touch({2});
  const uint64_t pool_pages = 4 * kMiB / kPage;
  uint64_t number = 100;
  for (; number < 100 + pool_pages; ++number) set(number, kPage);
  EXPECT_FALSE(held(1));
  EXPECT_TRUE(held(2));
  for (; number < 100 + 5 * pool_pages / 2; ++number) set(number, kPage);
  EXPECT_FALSE(held(2)) << "pages used once must not stay for ever";
}

TEST_F(PoolRecency, PageSetAgainSoonAfterItsEvictionCountsAsUsedAgain) {
  open(4 * kMiB);
  set(1, kPage);
  uint64_t number = 100;
  while (held(1)) set(number++, kPage);
  set(1, kPage);
  for (uint64_t end = number + 4 * kMiB / kPage; number < end; ++number) set(number, kPage);
  EXPECT_TRUE(held(1));
}

TEST_F(PoolRecency, TailThatIsRememberedGoesBeforeAHeadThatIsNot) {
  open(4 * kMiB);
  set_batch({1, 2}, kPage);
  uint64_t number = 100;
  while (held(2)) set(number++, kPage);
  const Digest head = digest_for(1);
  pool->evict({&head, 1});  // for an operator: not remembered
  set_batch({1, 2}, kPage);
  while (held(1) && held(2)) set(number++, kPage);
  EXPECT_TRUE(held(1));
}

TEST_F(PoolRecency, PinnedPageUsedAgainIsPassedOver) {
  open(4 * kMiB);
  set_batch({1, 2}, kPage);
  touch({1, 2});
  const PinnedPage page = pin(2);
  pool->evict_coldest(2 * kPage);
  EXPECT_FALSE(held(1));
  EXPECT_TRUE(held(2));
  unpin(page);
  pool->evict_coldest(1);
  EXPECT_FALSE(held(2));
}

TEST_F(PoolRecency, AdoptedPagesAreEvictedByTheirLastUse) {
  open(4 * kMiB);
  let_a_moment_pass();
  set_batch({1, 2, 3}, kPage);
  adopt({10, 11}, 0);
  adopt({20, 21}, kLongAgo);
  adopt({30}, 0);
  adopt({40}, kLongAgo);
  expect_evicted_before({20, 21, 40}, {1, 2, 3, 10, 11, 30});
  expect_evicted_before({1, 2, 3}, {10, 11, 30});
}

TEST_F(PoolRecency, AdoptedPagesKeepTheirPlaceAfterReadsAndRemovals) {
  open(4 * kMiB);
  let_a_moment_pass();
  set_batch({1, 2, 3}, kPage);
  adopt({20, 21}, kLongAgo);
  touch({20, 21});
  adopt({22, 23}, kLongAgo);
  std::vector<RecordRow> rows;
  adopt({25}, 0);
  for (uint64_t last : {23, 22, 25}) remove(last, rows);
  adopt({24}, kLongAgo);
  expect_evicted_before({24}, {1, 2, 3, 20, 21});
  expect_evicted_before({3, 2, 1}, {20, 21});
}

TEST_F(PoolRecency, PagesThatAnotherPoolHasTooGoBeforeMostOthers) {
  open(4 * kMiB);
  set_batch({1, 2}, kPage);
  let_a_moment_pass();
  let_a_moment_pass();
  set_batch({10, 11}, kPage);
  set_duplicates({20, 21, 22});
  set_batch({12, 13}, kPage);
  expect_evicted_before({1, 2, 20, 21, 22}, {10, 11, 12, 13});
}

TEST_F(PoolRecency, APageThatAnotherPoolHasTooStaysOnceItIsUsedHere) {
  open(4 * kMiB);
  set_batch({1, 2}, kPage);
  let_a_moment_pass();
  let_a_moment_pass();
  set_batch({10, 11}, kPage);
  set_duplicates({20, 21});
  touch({20});
  expect_evicted_before({1, 2, 21}, {10, 11, 20});
}

TEST_F(PoolRecency, PagesThatOtherPoolsHaveTooFillAnEmptyPool) {
  open(4 * kMiB);
  set_duplicates({1, 2, 3});
  let_a_moment_pass();
  set_duplicates({4, 5, 6});
  for (uint64_t number : {1, 2, 3, 4, 5, 6}) EXPECT_TRUE(held(number));
}

TEST_F(PoolRecency, OldAdoptedPagesGoFirstAmongMixedSizes) {
  open(8 * kMiB);
  let_a_moment_pass();
  for (uint64_t i = 0; i < 40; ++i) set(i, i % 2 == 0 ? kPage : 4 * kPage);
  adopt({100, 101, 102}, kLongAgo);
  uint64_t number = 1000;
  while (evicted_rows().size() < 3) set(number++, kPage);
  for (uint64_t old : {100, 101, 102}) EXPECT_FALSE(held(old));
}

}  // namespace
}  // namespace peercached
