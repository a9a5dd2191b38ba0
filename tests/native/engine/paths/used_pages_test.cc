#include "engine/paths/used_pages.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

Digest digest(uint64_t number) { return {number * 0x9e3779b97f4a7c15ULL, number}; }

std::vector<Digest> digests(uint64_t first, uint64_t end) {
  std::vector<Digest> made;
  for (; first < end; ++first) made.push_back(digest(first));
  return made;
}

TEST(UsedPages, AreTakenOnceByHolderInTheOrderOfReading) {
  UsedPages used;
  const TimePoint now = Clock::now();
  used.note(3, digests(0, 10), now);
  used.note(4, digests(100, 110), now);
  used.note(3, digests(10, 20), now);
  const auto taken = used.take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken.at(3), digests(0, 20));
  EXPECT_EQ(taken.at(4), digests(100, 110));
  EXPECT_TRUE(used.take().empty());
}

TEST(UsedPages, PageInSteadyUseIsReportedAtIntervals) {
  UsedPages used;
  const TimePoint now = Clock::now();
  used.note(3, digests(0, 1), now);
  used.take();
  used.note(3, digests(0, 1), now + std::chrono::milliseconds(500));
  EXPECT_TRUE(used.take().empty());
  used.note(3, digests(0, 1), now + std::chrono::milliseconds(1500));
  EXPECT_EQ(used.take().at(3), digests(0, 1));
}

TEST(UsedPages, AreBounded) {
  UsedPages used;
  const TimePoint now = Clock::now();
  uint64_t first = 0;
  for (HolderIndex holder = 1; holder <= 64; ++holder, first += 5000)
    used.note(holder, digests(first, first + 5000), now);
  size_t all = 0;
  for (const auto& [holder, pages] : used.take()) {
    EXPECT_LE(pages.size(), 4096u);
    all += pages.size();
  }
  EXPECT_EQ(all, 65536u);
}

}  // namespace
}  // namespace peercached
