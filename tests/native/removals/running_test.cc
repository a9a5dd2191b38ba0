// Running removals: which sets they refuse, and which copies in flight they doom.

#include "removals/running.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace peercached {
namespace {

Digest key_of(uint64_t number) { return {number * 0x9e3779b97f4a7c15 + 1, ~number}; }

TEST(Running, ADigestRunsUntilEachOfItsRemovalsIsOver) {
  Running running;
  const Digest one[] = {key_of(1)}, both[] = {key_of(1), key_of(2)};
  const uint64_t before = running.changes();
  EXPECT_FALSE(running.any());
  EXPECT_TRUE(running.begin(one));
  EXPECT_TRUE(running.begin(both));
  EXPECT_EQ(running.digests(), 2u);
  running.end(both);
  EXPECT_TRUE(running.has(key_of(1)));
  EXPECT_FALSE(running.has(key_of(2)));
  running.end(one);
  running.end(one);  // not running: ignored
  EXPECT_FALSE(running.any());
  EXPECT_EQ(running.changes(), before + 5);
}

TEST(Running, MoreThanCanRunAreRefusedAsAWhole) {
  Running running;
  std::vector<Digest> many;
  for (uint64_t number = 0; number < Running::kDigestsMax; ++number) {
    many.push_back(key_of(number));
  }
  EXPECT_TRUE(running.begin(many));
  const Digest more[] = {key_of(1), key_of(Running::kDigestsMax)};
  EXPECT_FALSE(running.begin(more));
  EXPECT_FALSE(running.has(more[1]));
  running.end(many);
  EXPECT_FALSE(running.any()) << "the refused one had begun";
  EXPECT_TRUE(running.begin(more));
}

TEST(Running, CopyIsDoomedByAnyRemovalOverlappingIt) {
  Running running;
  const Digest digests[] = {key_of(1), key_of(2), key_of(3), key_of(4)};
  const std::span<const Digest> all = digests;
  running.begin(all.subspan(0, 1));  // began before the copy
  Running::Taking taking(running, all);
  running.end(all.subspan(0, 1));
  running.begin(all.subspan(1, 1));
  running.end(all.subspan(1, 1));    // begins and ends during the copy
  running.begin(all.subspan(2, 1));  // begins during the copy and still runs
  EXPECT_TRUE(taking.doomed(digests[0]));
  EXPECT_TRUE(taking.doomed(digests[1]));
  EXPECT_TRUE(taking.doomed(digests[2]));
  EXPECT_FALSE(taking.doomed(digests[3]));
  running.end(all.subspan(2, 1));
}

TEST(Running, LaterCopyIsNotDoomedByAFinishedRemoval) {
  Running running;
  const Digest one[] = {key_of(1)};
  {
    Running::Taking first(running, one);
    running.begin(one);
    running.end(one);
    EXPECT_TRUE(first.doomed(one[0]));
  }
  const Running::Taking second(running, one);
  EXPECT_FALSE(second.doomed(one[0]));
}

TEST(Running, NoCopyFromBeforeARemovalOutlivesIt) {
  Running running;
  const Digest one[] = {key_of(1)};
  std::mutex pool;
  std::atomic<uint64_t> removals{0};  // number of the last removal
  uint64_t held = 0;                  // guarded by pool; the copy read after removal `held - 1`
  std::atomic<uint64_t> committed{0};
  std::atomic<bool> stop{false};
  std::thread taker([&] {
    while (!stop) {
      const Running::Taking taking(running, one);
      const uint64_t copy = removals.load() + 1;
      std::this_thread::yield();
      std::lock_guard lock(pool);
      if (taking.doomed(one[0])) continue;
      held = copy;
      ++committed;
    }
  });
  for (uint64_t round = 1; round <= 2000; ++round) {
    ASSERT_TRUE(running.begin(one));
    removals = round;
    {
      std::lock_guard lock(pool);
      held = 0;
    }
    running.end(one);
    for (const uint64_t before = committed; committed == before;) std::this_thread::yield();
    std::lock_guard lock(pool);
    EXPECT_EQ(held, round + 1);
  }
  stop = true;
  taker.join();
}

}  // namespace
}  // namespace peercached
