#include "engine/holds.h"

#include <gtest/gtest.h>

#include "transfer/fixture.h"

namespace peercached {
namespace {

using testing::digest_of_page;
using testing::PagePool;

class Holds : public ::testing::Test {
 protected:
  static constexpr uint32_t kLength = 60'000;

  // Returns how many of the `count` pages from `first` on were held.
  size_t hold(HoldTable& holds, uint64_t first, size_t count, TimePoint until) {
    std::vector<Digest> digests;
    for (size_t i = 0; i < count; ++i) digests.push_back(digest_of_page(first + i));
    std::vector<uint8_t> held(count);
    holds.hold(digests, until, held);
    return static_cast<size_t>(std::count(held.begin(), held.end(), 1));
  }
  void set(uint64_t first, size_t count) {
    for (size_t i = 0; i < count; ++i) pages.set(first + i, kLength);
  }
  bool has(uint64_t number) {
    const Digest digest = digest_of_page(number);
    uint8_t present = 0;
    pages.pool.contains({&digest, 1}, false, {&present, 1});
    return present != 0;
  }

  PagePool pages{4 << 20};  // room for 65 pages
  const TimePoint start = Clock::now();
  const TimePoint later = start + std::chrono::seconds(5);
};

TEST_F(Holds, HeldPagesSurvivePoolTurnoverUntilExpiry) {
  HoldTable holds(pages.pool, 100, 1 << 20);
  set(0, 8);
  EXPECT_EQ(hold(holds, 0, 8, later), 8u);
  set(100, 300);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(has(i)) << i;
  EXPECT_EQ(holds.expire(start), later);
  EXPECT_EQ(holds.expire(later), TimePoint::max());
  EXPECT_EQ(holds.stats().pages, 0u);
  EXPECT_EQ(pages.pins(), 0u);
  set(500, 300);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_FALSE(has(i)) << i;
}

TEST_F(Holds, HoldCoversOnlyPresentPages) {
  HoldTable holds(pages.pool, 100, 1 << 20);
  set(0, 2);
  EXPECT_EQ(hold(holds, 0, 5, later), 2u);
}

TEST_F(Holds, HoldsBeyondTheBoundsAreRefusedWithoutPins) {
  HoldTable by_bytes(pages.pool, 100, 4 * kLength);
  HoldTable by_pages(pages.pool, 3, 1 << 30);
  set(0, 8);
  EXPECT_EQ(hold(by_bytes, 0, 8, later), 4u);
  EXPECT_EQ(by_bytes.stats().refused, 4u);
  EXPECT_EQ(hold(by_pages, 0, 8, later), 3u);
  EXPECT_EQ(pages.pins(), 7u);
  // Pages that are already held need no new room.
  EXPECT_EQ(hold(by_bytes, 0, 4, later), 4u);
  EXPECT_EQ(pages.pins(), 7u);
}

TEST_F(Holds, HoldingAgainLastsForTheLongerTime) {
  HoldTable holds(pages.pool, 100, 1 << 20);
  set(0, 1);
  const TimePoint soon = start + std::chrono::seconds(1);
  hold(holds, 0, 1, soon);
  hold(holds, 0, 1, later);
  hold(holds, 0, 1, soon);
  EXPECT_EQ(holds.expire(soon), later);
  EXPECT_EQ(holds.stats().pages, 1u);
  holds.expire(later);
  EXPECT_EQ(pages.pins(), 0u);
}

TEST_F(Holds, PageSetAgainAfterRemovalCanBeHeldAgain) {
  HoldTable holds(pages.pool, 100, 1 << 20);
  set(0, 1);
  hold(holds, 0, 1, later);
  const Digest digest = digest_of_page(0);
  std::vector<RecordRow> rows;
  pages.pool.remove({&digest, 1}, rows);
  EXPECT_FALSE(has(0));
  EXPECT_EQ(hold(holds, 0, 1, later), 0u);
  set(0, 1);
  EXPECT_EQ(hold(holds, 0, 1, later), 1u);
  EXPECT_EQ(holds.stats().pages, 1u);
  set(100, 300);
  EXPECT_TRUE(has(0));
  holds.expire(later);
  EXPECT_EQ(pages.pins(), 0u);
}

TEST_F(Holds, DestroyedTableLeavesNoPins) {
  set(0, 4);
  {
    HoldTable holds(pages.pool, 100, 1 << 20);
    hold(holds, 0, 4, later);
    EXPECT_EQ(pages.pins(), 4u);
  }
  EXPECT_EQ(pages.pins(), 0u);
}

}  // namespace
}  // namespace peercached
