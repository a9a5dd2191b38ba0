// The pages that were read most lately.
#include "pool/reads.h"

#include "pool/page_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kRead = 16 * kKiB;

TEST(Reads, CountThisWindowAndTheOneBefore) {
  Slot slot;
  for (int i = 0; i < 5; ++i) count_read(slot, 1000);
  EXPECT_EQ(reads_lately(slot, 1000), 5u);
  EXPECT_EQ(reads_lately(slot, kReadsWindowMs), 5u);
  count_read(slot, kReadsWindowMs);
  EXPECT_EQ(reads_lately(slot, kReadsWindowMs), 6u);
  EXPECT_EQ(reads_lately(slot, 2 * kReadsWindowMs), 1u);
  EXPECT_EQ(reads_lately(slot, 3 * kReadsWindowMs), 0u);
}

TEST(Reads, AFullCountStaysFull) {
  Slot slot;
  for (int i = 0; i < 70'000; ++i) count_read(slot, 0);
  EXPECT_EQ(reads_lately(slot, 0), 65'535u);
}

class PoolHottest : public PageFixture {
 protected:
  void read(uint64_t number, int times) {
    const Digest digest = digest_for(number);
    for (int i = 0; i < times; ++i) {
      PinnedPage page;
      pool->pin({&digest, 1}, nullptr, true, {&page, 1});
      unpin(page);
    }
  }
  std::vector<Digest> digests(size_t limit, uint32_t of = 0) {
    std::vector<Digest> found;
    for (const HotPage& page : pool->hottest(limit, of)) found.push_back(page.digest);
    return found;
  }
};

TEST_F(PoolHottest, PagesReadMostComeFirstAndUnreadOnesNot) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 100; ++i) set(i, kRead);
  for (uint64_t i = 0; i < 10; ++i) read(i, static_cast<int>(10 - i));
  ASSERT_EQ(pool->hottest(20).size(), 10u);
  EXPECT_EQ(pool->hottest(20)[0].reads, 10u);
  EXPECT_EQ(digests(3), (std::vector{digest_for(0), digest_for(1), digest_for(2)}));
  EXPECT_TRUE(digests(0).empty());
}

TEST_F(PoolHottest, ExistsIsNoRead) {
  open(8 * kMiB);
  set(0, kRead);
  touch({0});
  EXPECT_TRUE(pool->hottest(1).empty());
  std::vector<uint8_t> present(1);
  const Digest digest = digest_for(0);
  pool->contains({&digest, 1}, true, present, true);
  EXPECT_EQ(pool->hottest(1).size(), 1u) << "a peer has read it";
}

TEST_F(PoolHottest, OfOneNamespaceOnly) {
  open(8 * kMiB);
  namespace_slot = 1;
  set(0, kRead);
  namespace_slot = 2;
  set(1, kRead);
  read(0, 1);
  read(1, 2);
  EXPECT_EQ(digests(5, 1), std::vector{digest_for(0)});
  EXPECT_EQ(digests(5).size(), 2u);
}

TEST_F(PoolHottest, APageThatIsSetAgainBeginsAtNone) {
  open(8 * kMiB);
  set(0, kRead);
  read(0, 5);
  std::vector<RecordRow> rows;
  const Digest digest = digest_for(0);
  pool->remove({&digest, 1}, rows);
  set(1, kRead);  // takes the slot
  set(0, kRead);
  EXPECT_TRUE(pool->hottest(5).empty());
}

}  // namespace
}  // namespace peercached
