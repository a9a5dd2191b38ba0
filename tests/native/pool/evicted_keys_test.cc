// Evicted pages that a larger pool would still have.

#include "pool/evicted_keys.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

constexpr uint64_t kPool = 64 << 20;
constexpr uint32_t kMiBPage = 1 << 20;

Digest page(uint64_t number) { return {number * 0x9e3779b97f4a7c15, number}; }

TEST(EvictedKeys, PageNeedsTwoPoolsUntilAsMuchWasEvictedAsThePoolHas) {
  EvictedKeys evicted(kPool);
  const Digest first = page(1);
  EXPECT_EQ(evicted.pools_needed(first), 0u);
  evicted.add(first, kMiBPage);
  uint64_t number = 2;
  const auto evict_more = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) evicted.add(page(number++), kMiBPage);
  };
  EXPECT_EQ(evicted.pools_needed(first), 2u);
  evict_more(63);
  EXPECT_EQ(evicted.pools_needed(first), 2u);
  evict_more(1);
  EXPECT_EQ(evicted.pools_needed(first), 4u);
  evict_more(127);
  EXPECT_EQ(evicted.pools_needed(first), 4u);
  evict_more(1);
  EXPECT_EQ(evicted.pools_needed(first), 0u);
  evicted.add(first, kMiBPage);  // set again, and evicted again
  EXPECT_EQ(evicted.pools_needed(first), 2u);
  EXPECT_EQ(evicted.pools_needed(page(999'999)), 0u);
}

TEST(EvictedKeys, NewEvictionsReplaceTheOldestInAFullTable) {
  EvictedKeys evicted(kPool);
  // Far more pages than there is room for.
  for (uint64_t number = 0; number < 1'000'000; ++number) evicted.add(page(number), 64);
  unsigned known = 0;
  for (uint64_t number = 999'000; number < 1'000'000; ++number) {
    known += evicted.pools_needed(page(number)) == 2;
  }
  EXPECT_EQ(known, 1'000u);
}

}  // namespace
}  // namespace peercached
