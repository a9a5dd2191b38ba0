// A pool that gets its memory part by part.
#include <thread>

#include "eventually.h"
#include "pool/page_fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kPart = 64 * kMiB;

class PoolGrowing : public PageFixture {
 protected:
  void SetUp() override {
    first_bytes = kPart;
    open(3 * kPart, 0.98, 0.96);
    ASSERT_EQ(pool->ready_bytes(), kPart);
  }
  void grow() {
    const auto bytes = pool->touch_more();
    ASSERT_TRUE(bytes);
    pool->grow_to(*bytes);
  }
  void fill(uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; ++number) set(number, kMiB);
  }
};

TEST_F(PoolGrowing, SetWaitsForMemoryInsteadOfEvicting) {
  fill(0, 62);
  std::thread sets([&] { fill(62, 100); });
  EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes > 60 * kMiB; }));
  grow();
  grow();
  sets.join();
  EXPECT_EQ(pool->ready_bytes(), pool->size_bytes());
  EXPECT_FALSE(pool->touch_more());
  EXPECT_EQ(pool->stats().keys, 162u);
  EXPECT_TRUE(evicted.empty());
  fill(162, 60);
  EXPECT_TRUE(eventually([&] { return pool->stats().evictions > 0; }));
}

TEST_F(PoolGrowing, PoolThatStopsGrowingIsASmallPool) {
  grow();
  pool->stop_growing("no memory");
  fill(0, 200);
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.ready_bytes, 2 * kPart);
  EXPECT_EQ(stats.capacity_bytes, 3 * kPart);
  EXPECT_EQ(stats.why_small, "no memory");
  EXPECT_GE(stats.evictions, 72u);
  EXPECT_LE(stats.used_bytes, 2 * kPart);
}

TEST_F(PoolGrowing, PageMayLieInTwoParts) {
  fill(0, 40);
  grow();
  const RecordRow row = set(100, 40 * kMiB);
  EXPECT_LT(row.offset, kPart);
  EXPECT_GT(row.offset + row.length, kPart);
}

}  // namespace
}  // namespace peercached
