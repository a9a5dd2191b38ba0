#include "engine/storage/holds.h"

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
  set(0, 16);
  EXPECT_EQ(hold(by_bytes, 0, 8, later), 4u);
  EXPECT_EQ(by_bytes.stats().refused, 4u);
  EXPECT_EQ(hold(by_pages, 8, 8, later), 3u);
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

class Pins : public Holds {
 protected:
  std::vector<PageStatus> pin(uint64_t first, size_t count, TimePoint until,
                              uint64_t bytes_max = kAll) {
    std::vector<PageStatus> statuses(count);
    why = table.pin(numbers(first, count), until, bytes_max, statuses);
    return statuses;
  }
  size_t pinned(uint64_t first, size_t count, TimePoint until, uint64_t bytes_max = kAll) {
    const auto statuses = pin(first, count, until, bytes_max);
    return static_cast<size_t>(std::ranges::count(statuses, PageStatus::ok));
  }
  std::vector<PageStatus> unpin(uint64_t first, size_t count) {
    std::vector<PageStatus> statuses(count);
    table.unpin(numbers(first, count), statuses);
    return statuses;
  }
  static std::vector<Digest> numbers(uint64_t first, size_t count) {
    std::vector<Digest> digests;
    for (size_t i = 0; i < count; ++i) digests.push_back(digest_of_page(first + i));
    return digests;
  }

  static constexpr uint64_t kAll = 1 << 30;
  HoldTable table{pages.pool, 100, 1 << 20};
  std::string why;
};

TEST_F(Pins, PinnedPagesSurvivePoolTurnoverUntilTheirTime) {
  set(0, 8);
  EXPECT_EQ(pinned(0, 8, later), 8u);
  EXPECT_EQ(why, "");
  EXPECT_EQ(table.stats().pinned.pages, 8u);
  EXPECT_EQ(table.stats().pinned.bytes, 8u * kLength);
  EXPECT_EQ(table.stats().pages, 0u) << "a pin takes nothing from the room of holds";
  set(100, 300);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(has(i)) << i;
  EXPECT_EQ(table.expire(start), later);
  EXPECT_EQ(table.expire(later), TimePoint::max());
  EXPECT_EQ(table.stats().pinned.pages, 0u);
  EXPECT_TRUE(table.pinned_by_namespace().empty());
  set(500, 300);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_FALSE(has(i)) << i;
}

TEST_F(Pins, APinAgainSetsTheTimeAnew) {
  set(0, 1);
  const TimePoint soon = start + std::chrono::seconds(1);
  pin(0, 1, later);
  pin(0, 1, soon);
  ASSERT_EQ(table.pins(10).size(), 1u);
  EXPECT_EQ(table.pins(10)[0].until, soon);
  EXPECT_EQ(table.expire(soon), TimePoint::max());
  EXPECT_EQ(pages.pins(), 0u);
}

TEST_F(Pins, APageThatIsNotHereIsAbsent) {
  set(0, 1);
  EXPECT_EQ(pin(0, 2, later), (std::vector{PageStatus::ok, PageStatus::absent}));
  EXPECT_EQ(table.stats().pins_refused, 0u);
}

TEST_F(Pins, OneNamespaceHasHalfOfAllPinsAndTheRefusalNamesValueAndLimit) {
  set(0, 8);
  EXPECT_EQ(pinned(0, 8, later, 6 * kLength), 3u);
  EXPECT_EQ(why,
            "a page of 60000 bytes beyond the 180000 bytes that its namespace has pinned "
            "here: 180000 are the limit (half of pin_share)");
  EXPECT_EQ(table.stats().pins_refused, 5u);
  EXPECT_EQ(pages.pins(), 3u) << "refused pages are not kept";
  EXPECT_EQ(pinned(0, 3, later, 6 * kLength), 3u) << "pinned pages need no new room";
}

TEST_F(Pins, AllPinsTogetherAreBounded) {
  for (uint64_t i = 0; i < 6; ++i) pages.set(i, kLength, static_cast<uint32_t>(i));
  EXPECT_EQ(pinned(0, 6, later, 4 * kLength), 4u);
  EXPECT_EQ(why,
            "a page of 60000 bytes beyond the 240000 bytes that all namespaces have pinned "
            "here: 240000 are the limit (pin_share)");
  EXPECT_EQ(pinned(0, 1, later, 0), 1u) << "a lower limit leaves what is pinned already";
}

TEST_F(Pins, APinTakesAtMostHalfOfTheQuota) {
  set(0, 8);
  pages.pool.set_quota(0, 5 * kLength);
  EXPECT_EQ(pinned(0, 8, later), 2u);
  EXPECT_EQ(why,
            "a page of 60000 bytes beyond the 120000 bytes that its namespace has pinned "
            "here: 150000 are the limit (half of its quota)");
}

TEST_F(Pins, AfterARefusedPageNoFurtherOneIsPinned) {
  pages.set(0, kLength);
  pages.set(1, 3 * kLength);
  pages.set(2, kLength);
  EXPECT_EQ(pin(0, 3, later, 6 * kLength),
            (std::vector{PageStatus::ok, PageStatus::no_space, PageStatus::no_space}));
}

TEST_F(Pins, RemovalWinsAndFreesTheMemoryAtOnce) {
  set(0, 2);
  EXPECT_EQ(pinned(0, 2, later), 2u);
  const uint64_t before = pages.pool.stats().used_bytes;
  const Digest digest = digest_of_page(0);
  std::vector<RecordRow> rows;
  pages.pool.remove({&digest, 1}, rows);
  EXPECT_FALSE(has(0));
  EXPECT_LT(pages.pool.stats().used_bytes, before);
  EXPECT_EQ(table.stats().pinned.pages, 1u);
  EXPECT_EQ(table.pins(10).size(), 1u);
  pages.pool.sweep_namespace(0, 10, rows);  // as `clear` does
  EXPECT_EQ(table.stats().pinned.pages, 0u);
  EXPECT_EQ(table.expire(later), TimePoint::max());
  set(0, 1);
  set(100, 300);
  EXPECT_FALSE(has(0)) << "a page that is set again is not pinned";
}

TEST_F(Pins, APinnedPageMakesWayForOneOfAnotherLength) {
  set(0, 1);
  pin(0, 1, later);
  pages.set(0, kLength / 2);
  EXPECT_EQ(table.stats().pinned.pages, 0u);
}

TEST_F(Pins, AReadersPinOutlivesThePinThatARemovalEnds) {
  set(0, 1);
  pin(0, 1, later);
  const Digest digest = digest_of_page(0);
  PinnedPage reader;
  pages.pool.pin({&digest, 1}, nullptr, true, {&reader, 1});
  std::vector<RecordRow> rows;
  pages.pool.remove({&digest, 1}, rows);
  EXPECT_EQ(pages.pins(), 1u);
  EXPECT_TRUE(testing::is_page(reader.payload(), kLength, 0));
  pages.pool.unpin({&reader, 1});
  EXPECT_EQ(pages.pins(), 0u);
  EXPECT_EQ(pages.pool.stats().used_bytes, 0u);
}

TEST_F(Pins, UnpinEndsAPinButNoHold) {
  set(0, 3);
  pin(0, 2, later);
  hold(table, 0, 1, later);
  EXPECT_EQ(unpin(0, 3), (std::vector{PageStatus::ok, PageStatus::ok, PageStatus::absent}));
  EXPECT_EQ(table.stats().pinned.pages, 0u);
  EXPECT_EQ(table.stats().pages, 1u);
  set(100, 300);
  EXPECT_TRUE(has(0));
  EXPECT_FALSE(has(1));
}

TEST_F(Pins, AHoldThatIsLongerThanThePinStays) {
  set(0, 1);
  const TimePoint soon = start + std::chrono::seconds(1);
  pin(0, 1, soon);
  hold(table, 0, 1, later);
  EXPECT_EQ(table.expire(soon), later);
  EXPECT_EQ(table.stats().pinned.pages, 0u);
  EXPECT_EQ(table.stats().pages, 1u);
}

TEST_F(Pins, SpillAndOperatorsLeavePinnedPages) {
  set(0, 60);
  pin(0, 4, later);
  for (const IdlePage& page : pages.pool.coldest(4 << 20, 2))
    for (uint64_t i = 0; i < 4; ++i) EXPECT_NE(page.row.digest, digest_of_page(i));
  pages.pool.evict(numbers(0, 4));
  pages.pool.evict_coldest(1 << 30);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(has(i));
  size_t handed = 0;
  for (const IdlePage& page : pages.pool.warmest(1 << 30))
    for (uint64_t i = 0; i < 4; ++i) handed += page.row.digest == digest_of_page(i);
  EXPECT_EQ(handed, 4u) << "a drain hands them over";
}

TEST_F(Pins, SettingAndRemovingPinnedPagesLeavesNothingBehind) {
  const Digest digest = digest_of_page(0);
  std::vector<RecordRow> rows;
  for (int round = 0; round < 1000; ++round) {
    set(0, 1);
    ASSERT_EQ(pinned(0, 1, later, 2 * kLength), 1u);
    pages.pool.remove({&digest, 1}, rows);
  }
  EXPECT_EQ(table.expire(start), TimePoint::max()) << "no entry waits for its time";
}

}  // namespace
}  // namespace peercached
