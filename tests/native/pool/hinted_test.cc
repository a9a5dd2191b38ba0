// Hints to the pool: pages that eviction passes over, takes first, or takes soon.
#include <random>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kHintedPage = 16 * kKiB;
constexpr uint32_t kHinting = 1, kOther = 2;
constexpr uint64_t kNoBound = UINT64_MAX;

class PoolHints : public PageFixture {
 protected:
  std::vector<Digest> digests_of(const std::vector<uint64_t>& numbers) {
    std::vector<Digest> digests;
    for (uint64_t number : numbers) digests.push_back(digest_for(number));
    return digests;
  }
  std::vector<KeptPage> retain(const std::vector<uint64_t>& numbers, uint64_t bytes_max = kNoBound,
                               uint64_t own_max = kNoBound, uint32_t ns = kHinting) {
    std::vector<KeptPage> pages(numbers.size());
    statuses.resize(numbers.size());
    pool->retain(ns, digests_of(numbers), bytes_max, own_max, statuses, pages);
    return pages;
  }
  void first_to_go(const std::vector<uint64_t>& numbers, uint32_t ns = kHinting) {
    statuses.resize(numbers.size());
    pool->first_to_go(ns, digests_of(numbers), statuses);
  }
  uint64_t set_many(uint64_t first, uint64_t count) {
    for (uint64_t i = first; i < first + count; ++i) set(i, kHintedPage);
    return first + count;
  }

  std::vector<PageStatus> statuses;
};

TEST_F(PoolHints, RetainedPagesOutliveAllOthersUntilTheyAreReleased) {
  open(4 * kMiB);
  set_many(0, 20);
  const auto kept = retain({0, 1, 2});
  EXPECT_EQ(pool->stats().retained.keys, 3u);
  set_many(1000, 1000);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(held(i)) << i;
  EXPECT_FALSE(held(3));
  pool->unretain(kept);
  EXPECT_EQ(pool->stats().retained.bytes, 0u);
  set_many(5000, 10);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_FALSE(held(i)) << i << " is as cold as its last use";
}

TEST_F(PoolHints, RetainedPagesGoWhenNothingElseIsLeft) {
  open(2 * kMiB);
  std::vector<uint64_t> all;
  while (evicted_rows().empty()) {
    all.push_back(all.size());
    set(all.back(), kHintedPage);
  }
  retain(all);
  set_many(1000, 300);
  set(2000, 300 * kKiB);
  EXPECT_TRUE(held(2000)) << "another size class finds room, too";
  EXPECT_EQ(pool->stats().no_space, 0u);
  EXPECT_LT(pool->stats().retained.keys, all.size());
}

TEST_F(PoolHints, PinnedPageThatIsRetainedStaysWhenOthersOfItsKindGo) {
  open(2 * kMiB);
  std::vector<uint64_t> all;
  while (evicted_rows().empty()) {
    all.push_back(all.size());
    set(all.back(), kHintedPage);
  }
  retain(all);
  const uint64_t last = all.back();
  EXPECT_GT(pool->evict_coldest(1).pages, 0u);  // all are parked now
  const PinnedPage page = pin(last);
  EXPECT_GT(pool->evict_coldest(kNoBound).pages, 0u);
  EXPECT_TRUE(held(last));
  unpin(page);
  EXPECT_EQ(pool->evict_coldest(kNoBound).pages, 1u);
}

TEST_F(PoolHints, RetainIsBoundedInAllAndForItsNamespace) {
  open(4 * kMiB);
  set_many(0, 10);
  retain({0, 1, 2, 3}, 3 * kHintedPage);
  const std::vector<PageStatus> three{PageStatus::ok, PageStatus::ok, PageStatus::ok,
                                      PageStatus::no_space};
  EXPECT_EQ(statuses, three);
  retain({0, 1}, 3 * kHintedPage, 2 * kHintedPage);
  EXPECT_EQ(statuses[1], PageStatus::ok) << "they are retained already";
  retain({5}, kNoBound, 3 * kHintedPage);
  EXPECT_EQ(statuses[0], PageStatus::no_space);
  EXPECT_EQ(pool->use_of(kHinting).retained_bytes, 3 * kHintedPage);
}

TEST_F(PoolHints, PagesOfAnotherNamespaceAreAbsent) {
  open(4 * kMiB);
  namespace_slot = kOther;
  set(0, kHintedPage);
  retain({0});
  EXPECT_EQ(statuses[0], PageStatus::absent);
  first_to_go({0});
  EXPECT_EQ(statuses[0], PageStatus::absent);
  pool->set_hinted(kHinting, digests_of({0}));
  EXPECT_EQ(pool->stats().hinted.keys + pool->stats().retained.keys, 0u);
}

TEST_F(PoolHints, FirstToGoComesBeforeOlderAndRetainedPages) {
  open(4 * kMiB);
  set_many(0, 100);
  touch({50});
  retain({51});
  first_to_go({50, 51, 999});
  const std::vector<PageStatus> found{PageStatus::ok, PageStatus::ok, PageStatus::absent};
  EXPECT_EQ(statuses, found);
  EXPECT_EQ(pool->stats().retained.keys, 0u);
  EXPECT_EQ(pool->evict_coldest(2 * kHintedPage).pages, 2u);
  EXPECT_FALSE(held(50));
  EXPECT_FALSE(held(51));
  EXPECT_TRUE(held(0));
}

TEST_F(PoolHints, PinnedPageGoesFirstOnceItIsUnpinned) {
  open(4 * kMiB);
  set_many(0, 10);
  const PinnedPage page = pin(9);
  first_to_go({9});
  EXPECT_EQ(pool->evict_coldest(1).pages, 1u);
  EXPECT_TRUE(held(9));
  EXPECT_FALSE(held(0));
  unpin(page);
  EXPECT_EQ(pool->evict_coldest(1).pages, 1u);
  EXPECT_FALSE(held(9));
}

TEST_F(PoolHints, HintedPageGoesBeforePagesInUseUntilItIsUsed) {
  open(4 * kMiB);
  set_many(0, 100);
  pool->set_hinted(kHinting, digests_of({98, 99}));
  EXPECT_EQ(pool->use_of(kHinting).hinted_bytes, 2 * kHintedPage);
  touch({98});
  EXPECT_EQ(pool->stats().hinted.keys, 1u);
  for (uint64_t i = 0; i < 98; ++i) touch({i});
  EXPECT_EQ(pool->evict_coldest(1).pages, 1u);
  EXPECT_FALSE(held(99));
  EXPECT_TRUE(held(98));
  EXPECT_EQ(pool->stats().hinted.bytes, 0u);
}

TEST_F(PoolHints, NamespaceAtItsQuotaTakesItsOtherPagesFirst) {
  open(8 * kMiB);
  set_many(0, 10);
  pool->set_quota(kHinting, pool->use_of(kHinting).bytes);
  retain({0, 1});
  set_many(100, 50);
  EXPECT_TRUE(held(0));
  EXPECT_TRUE(held(1));
  retain({140, 141, 142, 143, 144, 145, 146, 147, 148, 149});
  set_many(200, 10);
  EXPECT_EQ(pool->use_of(kHinting).refused, 0u) << "they go if there are no others";
}

TEST_F(PoolHints, CountsStayTrueInAnyOrderOfCalls) {
  open(2 * kMiB);
  std::mt19937 random(7);
  std::vector<std::pair<uint64_t, PinnedPage>> pins;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t number = random() % 200;
    switch (random() % 9) {
      case 0:
        retain({number, number + 1});
        break;
      case 1:
        first_to_go({number});
        break;
      case 2:
        pool->set_hinted(kHinting, digests_of({number, number + 1}));
        break;
      case 3:
        touch({number});
        break;
      case 4:
        if (pins.size() < 20)
          if (const PinnedPage page = pin(number)) pins.push_back({number, page});
        break;
      case 5:
        if (!pins.empty()) {
          unpin(pins.back().second);
          pins.pop_back();
        }
        break;
      case 6:
        pool->unretain(retain({number}));
        break;
      case 7: {
        std::vector<RecordRow> rows;
        if (step % 5 == 0) remove(number, rows);
        break;
      }
      default:
        if (const Reservation one = reserve(number, kHintedPage); one.page) {
          if (one.outcome == ReserveOutcome::reserved) commit(one, number);
          unpin(one.page);
        }
    }
    const PoolStats stats = pool->stats();
    ASSERT_LE(stats.retained.keys, stats.keys);
    ASSERT_EQ(stats.retained.bytes, stats.retained.keys * kHintedPage);
    ASSERT_EQ(stats.hinted.bytes, pool->use_of(kHinting).hinted_bytes);
    ASSERT_EQ(stats.no_space, 0u);
  }
  for (const auto& [number, page] : pins) unpin(page);
  pool->evict_coldest(kNoBound);
  EXPECT_EQ(pool->stats().keys, 0u) << "no page is lost to eviction";
  EXPECT_EQ(pool->stats().retained.keys + pool->stats().hinted.keys, 0u);
}

}  // namespace
}  // namespace peercached
