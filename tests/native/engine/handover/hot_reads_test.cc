#include "engine/handover/hot_reads.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

const Digest kNamespace{1, 2};

std::vector<RecordRow> rows(uint64_t first, uint64_t count, HolderIndex holder = 3,
                            uint32_t length = 4096) {
  std::vector<RecordRow> made(count);
  for (uint64_t i = 0; i < count; ++i) {
    made[i].digest = {(first + i) * 0x9e3779b97f4a7c15ULL, first + i};
    made[i].holder = holder;
    made[i].length = length;
  }
  return made;
}

size_t pages(const std::vector<std::pair<HolderIndex, Handover>>& parts) {
  size_t count = 0;
  for (const auto& [holder, part] : parts) count += part.rows.size();
  return count;
}

TEST(HotReads, OnlyPagesReadOftenAreHotAndOnlyOnce) {
  HotReads hot;
  const TimePoint now = Clock::now();
  for (uint32_t i = 0; i < HotReads::kReads; ++i) {
    EXPECT_FALSE(hot.hot().any());
    hot.note(kNamespace, 7, rows(0, 10), now);
    if (i > 0) hot.note(kNamespace, 7, rows(100, 10), now);
  }
  const auto taken = hot.hot().take();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].first, 3);
  EXPECT_EQ(taken[0].second.namespace_id, kNamespace);
  EXPECT_EQ(taken[0].second.epoch, 7u);
  EXPECT_EQ(taken[0].second.rows.size(), 10u);
  EXPECT_FALSE(hot.hot().any());
}

TEST(HotReads, ReadsThatAreFarApartDoNotCount) {
  HotReads hot;
  TimePoint now = Clock::now();
  for (uint32_t i = 0; i < 2 * HotReads::kReads; ++i) {
    hot.note(kNamespace, 0, rows(0, 1), now);
    now += HotReads::kWindow;
  }
  EXPECT_FALSE(hot.hot().any());
}

TEST(HotReads, PartsAreOfOneHolderAndBounded) {
  HotReads hot;
  const TimePoint now = Clock::now();
  for (uint32_t i = 0; i < HotReads::kReads; ++i) {
    hot.note(kNamespace, 0, rows(0, 2 * kHandoverPages), now);
    hot.note(kNamespace, 0, rows(10'000, 2, 4, static_cast<uint32_t>(kHandoverBytes)), now);
    hot.note(kNamespace, 0, rows(20'000, 2, 4, kHandoverPageBytesMax + 1), now);
  }
  const auto taken = hot.hot().take();
  EXPECT_EQ(taken.size(), 4u);
  EXPECT_EQ(pages(taken), 2 * kHandoverPages + 2) << "pages that are too large stay where they are";
}

TEST(HotReads, AreBounded) {
  HotReads hot;
  for (uint32_t i = 0; i < HotReads::kReads; ++i)
    hot.note(kNamespace, 0, rows(0, 2 * HotReads::kHotMax), Clock::now());
  EXPECT_EQ(pages(hot.hot().take()), HotReads::kHotMax);
}

}  // namespace
}  // namespace peercached
