// How much of a prompt's beginning each node has.
#include "engine/records/prefixes.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

Digest page(uint64_t number) { return {number * 0x9e3779b97f4a7c15, number}; }

RecordRow at(HolderIndex holder, uint64_t number, bool in_pool = true) {
  RecordRow row{.digest = page(number)};
  row.holder = holder;
  row.flags = in_pool ? kRecordResident : 0;
  return row;
}

TEST(Prefix, EachNodeCountsToItsFirstMissingPageAndAllToTheFirstThatIsNowhere) {
  const std::vector<Digest> prompt{page(1), page(2), page(3), page(4), page(5)};
  const std::vector<RecordRow> rows{at(2, 4), at(1, 2), at(1, 1), at(2, 3),
                                    at(3, 1), at(3, 2), at(3, 4), at(1, 9)};
  const ClusterPrefix found = prefix_of(prompt, rows);
  EXPECT_EQ(found.present, 4u);
  ASSERT_EQ(found.nodes.size(), 2u) << "2 has not the first page";
  EXPECT_EQ(found.nodes[0].holder, 1);
  EXPECT_EQ(found.nodes[0].pages, 2u);
  EXPECT_EQ(found.nodes[1].holder, 3);
  EXPECT_EQ(found.nodes[1].pages, 2u);
}

TEST(Prefix, PagesOnDiskCountOnceAndAPoolsRecordWins) {
  const std::vector<Digest> prompt{page(1), page(2), page(1)};
  const std::vector<RecordRow> rows{at(1, 1), at(1, 1, false), at(1, 2, false)};
  const ClusterPrefix found = prefix_of(prompt, rows);
  EXPECT_EQ(found.present, 3u);
  ASSERT_EQ(found.nodes.size(), 1u);
  EXPECT_EQ(found.nodes[0].pages, 3u);
  EXPECT_EQ(found.nodes[0].in_pool, 2u);
}

TEST(Prefix, NoPagesAndNoRowsGiveNothing) {
  EXPECT_EQ(prefix_of({}, {}).present, 0u);
  const Digest first = page(1);
  EXPECT_EQ(prefix_of({&first, 1}, {}).present, 0u);
}

}  // namespace
}  // namespace peercached
