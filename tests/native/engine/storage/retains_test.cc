#include "engine/storage/retains.h"

#include <gtest/gtest.h>

#include "transfer/fixture.h"

namespace peercached {
namespace {

using testing::digest_of_page;
using testing::PagePool;

class Retains : public ::testing::Test {
 protected:
  std::string retain(RetainTable& table, uint64_t first, size_t count, TimePoint until,
                     uint64_t bytes_max = UINT64_MAX) {
    std::vector<Digest> digests;
    for (size_t i = 0; i < count; ++i) digests.push_back(digest_of_page(first + i));
    statuses.resize(count);
    return table.retain(1, digests, until, bytes_max, bytes_max, statuses);
  }
  uint64_t retained() { return pages.pool.stats().retained.keys; }

  std::vector<PageStatus> statuses;
  PagePool pages{4 << 20};
  const TimePoint start = Clock::now();
  const TimePoint later = start + std::chrono::seconds(5);
};

TEST_F(Retains, PagesAreRetainedUntilTheirTimeIsOver) {
  RetainTable table(pages.pool, 100);
  for (uint64_t i = 0; i < 3; ++i) pages.set(i, 60'000, 1);
  EXPECT_EQ(retain(table, 0, 4, later), "");
  EXPECT_EQ(statuses[3], PageStatus::absent);
  EXPECT_EQ(retain(table, 0, 1, start), "") << "a new time replaces the former one";
  EXPECT_EQ(table.expire(start), later);
  EXPECT_EQ(retained(), 2u);
  EXPECT_EQ(table.expire(later), TimePoint::max());
  EXPECT_EQ(retained(), 0u);
}

TEST_F(Retains, BoundsAreNamed) {
  RetainTable table(pages.pool, 4);
  for (uint64_t i = 0; i < 3; ++i) pages.set(i, 60'000, 1);
  EXPECT_EQ(retain(table, 0, 3, later, 120'000),
            "hints may retain 120000 bytes here, and 120000 of this namespace (hint_share)");
  EXPECT_EQ(statuses[2], PageStatus::no_space);
  EXPECT_EQ(retain(table, 0, 3, later),
            "2 pages are retained here already: 4 are the limit of a node");
  EXPECT_EQ(retained(), 2u);
}

TEST_F(Retains, EndOfAPageThatWasSetAnewLeavesTheNewOneAlone) {
  RetainTable table(pages.pool, 100);
  pages.set(0, 60'000, 1);
  retain(table, 0, 1, start);
  const Digest digest = digest_of_page(0);
  pages.pool.evict({&digest, 1});
  pages.set(0, 60'000, 1);
  std::vector<KeptPage> kept(1);
  std::vector<PageStatus> found(1);
  pages.pool.retain(1, {&digest, 1}, UINT64_MAX, UINT64_MAX, found, kept);
  table.expire(later);
  EXPECT_EQ(retained(), 1u);
}

}  // namespace
}  // namespace peercached
