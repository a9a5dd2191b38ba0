#include "engine/records/locations.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

RecordRow row(uint64_t n, HolderIndex holder) {
  RecordRow one;
  one.digest = {n * 0x9e3779b97f4a7c15ull, n};
  one.offset = n * 64;
  one.generation = n;
  one.length = 1;
  one.holder = holder;
  return one;
}

TEST(LocationCache, ForgettingAHolderKeepsOtherHolders) {
  const Running running;
  LocationCache cache(4096, running);
  for (uint64_t n = 1; n <= 200; ++n) cache.put(row(n, n % 2 == 0 ? 3 : 4), Clock::now(), 0);
  cache.forget_holder(3);
  RecordRow found;
  for (uint64_t n = 1; n <= 200; ++n) {
    EXPECT_EQ(cache.find(row(n, 0).digest, TimePoint::min(), found), n % 2 == 1) << n;
  }
}

TEST(LocationCache, IsBoundedAndNewerRowsReplaceOlder) {
  const Running running;
  LocationCache cache(64, running);
  RecordRow found;
  for (uint64_t n = 1; n <= 10'000; ++n) cache.put(row(n, 1), Clock::now(), 0);
  size_t held = 0;
  for (uint64_t n = 1; n <= 10'000; ++n)
    held += cache.find(row(n, 0).digest, TimePoint::min(), found);
  EXPECT_LE(held, cache.entries_max());
  RecordRow newer = row(10'000, 2);
  cache.put(newer, Clock::now(), 0);
  ASSERT_TRUE(cache.find(newer.digest, TimePoint::min(), found));
  EXPECT_EQ(found.holder, 2);
}

TEST(LocationCache, FindIgnoresEntriesOlderThanAsked) {
  const Running running;
  LocationCache cache(64, running);
  const TimePoint then = Clock::now();
  cache.put(row(1, 1), then, 0);
  RecordRow found;
  EXPECT_TRUE(cache.find(row(1, 1).digest, then, found));
  EXPECT_FALSE(cache.find(row(1, 1).digest, then + std::chrono::seconds(1), found));
}

TEST(LocationCache, EntryLearntBeforeARemovalBeganOrEndedIsNotPut) {
  Running running;
  LocationCache cache(64, running);
  const Digest removed = row(1, 1).digest;
  RecordRow found;
  const uint64_t before = running.changes();
  running.begin({&removed, 1});
  cache.put(row(1, 1), Clock::now(), before);
  EXPECT_FALSE(cache.find(removed, TimePoint::min(), found));
  const uint64_t meanwhile = running.changes();
  running.end({&removed, 1});
  cache.put(row(1, 1), Clock::now(), meanwhile);
  EXPECT_FALSE(cache.find(removed, TimePoint::min(), found));
  cache.put(row(1, 1), Clock::now(), running.changes());
  EXPECT_TRUE(cache.find(removed, TimePoint::min(), found));
}

TEST(LocationCache, ZeroEntriesTurnTheCacheOff) {
  const Running running;
  LocationCache cache(0, running);
  cache.put(row(1, 1), Clock::now(), 0);
  RecordRow found;
  EXPECT_FALSE(cache.find(row(1, 1).digest, TimePoint::min(), found));
  cache.forget_holder(1);
}

}  // namespace
}  // namespace peercached
