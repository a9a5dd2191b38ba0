// A namespace's quota: only its own pages pay for it.
#include <random>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kLength = 16 * kKiB - sizeof(uint64_t) * 8;  // a stride of 16 KiB
constexpr uint32_t kOurs = 7, kTheirs = 8;

class PoolQuota : public PageFixture {
 protected:
  void set_in(uint32_t ns, uint64_t number, uint32_t length = kLength) {
    namespace_slot = ns;
    set(number, length);
  }
  uint64_t bytes(uint32_t ns) const { return pool->use_of(ns).bytes; }
};

TEST_F(PoolQuota, NamespaceAtItsQuotaEvictsItsOwnColdestPages) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 100; ++i) set_in(kTheirs, 1000 + i);
  set_in(kOurs, 0);
  const uint64_t stride = bytes(kOurs);
  pool->set_quota(kOurs, 10 * stride);
  for (uint64_t i = 1; i < 10; ++i) set_in(kOurs, i);
  touch({0});
  set_in(kOurs, 10);
  EXPECT_TRUE(held(0));
  EXPECT_FALSE(held(1));
  for (uint64_t i = 11; i < 500; ++i) set_in(kOurs, i);
  EXPECT_EQ(bytes(kOurs), 10 * stride);
  EXPECT_EQ(pool->use_of(kOurs).evictions, 490u);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_TRUE(held(1000 + i)) << "theirs were colder, and stay";
}

TEST_F(PoolQuota, TheTailOfAChainGoesBeforeItsHead) {
  open(8 * kMiB);
  namespace_slot = kOurs;
  pool->set_quota(kOurs, kMiB);  // from now on, pages are listed by last use
  set_batch({0, 1, 2, 3}, kLength);
  pool->set_quota(kOurs, bytes(kOurs));
  set_batch({4, 5}, kLength);
  EXPECT_TRUE(held(0));
  EXPECT_TRUE(held(1));
  EXPECT_FALSE(held(2));
  EXPECT_FALSE(held(3));
}

TEST_F(PoolQuota, KeptPagesHideNoneOfThePagesBehindThem) {
  open(64 * kMiB);
  constexpr uint64_t kKept = 1100, kOthers = 50;  // more than eviction skips of pinned pages
  std::vector<Digest> kept;
  for (uint64_t i = 0; i < kKept + kOthers; ++i) {
    set_in(kOurs, i);
    if (i < kKept) kept.push_back(digest_for(i));
  }
  std::vector<KeptPage> pages(kept.size());
  pool->keep(kept, pages);
  for (uint64_t i = kKept; i < kKept + kOthers; ++i) touch({i});
  pool->set_quota(kOurs, bytes(kOurs));
  for (uint64_t i = 0; i < 3 * kOthers; ++i) set_in(kOurs, 10'000 + i);
  for (uint64_t i = 0; i < kKept; ++i) ASSERT_TRUE(held(i)) << i;
  EXPECT_EQ(pool->use_of(kOurs).refused, 0u);
  pool->release(pages);
}

TEST_F(PoolQuota, PinnedPagesStayAndTheNewPageIsRefused) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 4; ++i) set_in(kOurs, i);
  pool->set_quota(kOurs, bytes(kOurs));
  std::vector<PinnedPage> pins;
  for (uint64_t i = 0; i < 4; ++i) pins.push_back(pin(i));
  EXPECT_EQ(reserve(9, kLength).outcome, ReserveOutcome::no_space);
  EXPECT_EQ(pool->use_of(kOurs).refused, 1u);
  set_in(kTheirs, 10);
  namespace_slot = kOurs;
  unpin(pins[2]);
  set(9, kLength);
  EXPECT_FALSE(held(2));
  for (uint64_t i : {0, 1, 3}) EXPECT_TRUE(held(i));
  unpin(pins[0]);
  unpin(pins[1]);
  unpin(pins[3]);
}

TEST_F(PoolQuota, APageLargerThanTheQuotaCostsTheNamespaceNothing) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 4; ++i) set_in(kOurs, i);
  pool->set_quota(kOurs, bytes(kOurs));
  EXPECT_EQ(reserve(9, 1 * kMiB).outcome, ReserveOutcome::no_space);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(held(i));
}

TEST_F(PoolQuota, ReservedAbortedAndRemovedPagesAreCountedOnce) {
  open(8 * kMiB);
  namespace_slot = kOurs;
  pool->set_quota(kOurs, kMiB);
  const Reservation first = reserve(1, kLength);
  const uint64_t stride = bytes(kOurs);
  EXPECT_GT(stride, kLength);
  pool->abort({&first.page, 1});
  EXPECT_EQ(bytes(kOurs), 0u);
  set(2, kLength);
  const PinnedPage page = pin(2);
  std::vector<RecordRow> rows;
  const Digest digest = digest_for(2);
  pool->remove({&digest, 1}, rows);
  EXPECT_EQ(bytes(kOurs), stride) << "its memory is in use until the last unpin";
  unpin(page);
  EXPECT_EQ(bytes(kOurs), 0u);
}

TEST_F(PoolQuota, LoweredQuotaAppliesAtTheNextPageAndDroppingLiftsIt) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 20; ++i) set_in(kOurs, i);
  const uint64_t stride = bytes(kOurs) / 20;
  pool->set_quota(kOurs, 5 * stride);
  set_in(kOurs, 20);
  EXPECT_EQ(bytes(kOurs), 5 * stride);
  pool->drop_quota(kOurs);
  for (uint64_t i = 30; i < 40; ++i) set_in(kOurs, i);
  EXPECT_EQ(bytes(kOurs), 15 * stride);
}

TEST_F(PoolQuota, QuotasHoldUnderRandomUseAndUsesAddUp) {
  open(4 * kMiB, 0.9, 0.8);
  std::mt19937_64 random(3);
  const uint64_t quotas[] = {200 * kKiB, 700 * kKiB, UINT64_MAX};
  for (uint32_t ns = 0; ns < 2; ++ns) pool->set_quota(ns + 1, quotas[ns]);
  const uint32_t lengths[] = {4000, kLength, 100 * kKiB};
  std::vector<PinnedPage> pins;
  for (int round = 0; round < 20'000; ++round) {
    namespace_slot = 1 + static_cast<uint32_t>(random() % 3);
    const uint64_t number = namespace_slot * 1000 + random() % 150;
    switch (random() % 8) {
      case 0:
        if (const PinnedPage page = pin(number)) pins.push_back(page);
        break;
      case 1:
        if (!pins.empty()) {
          unpin(pins.back());
          pins.pop_back();
        }
        break;
      case 2: {
        std::vector<RecordRow> rows;
        const Digest digest = digest_for(number);
        pool->remove({&digest, 1}, rows);
        break;
      }
      default: {
        const Reservation one = reserve(number, lengths[number % 3]);
        if (one.outcome == ReserveOutcome::reserved) {
          if (random() % 10 == 0) {
            pool->abort({&one.page, 1});
          } else {
            commit(one, number);
            unpin(one.page);
          }
        } else if (one.outcome == ReserveOutcome::present) {
          unpin(one.page);
        }
      }
    }
    for (uint32_t ns = 0; ns < 2; ++ns) ASSERT_LE(bytes(ns + 1), quotas[ns]) << round;
    if (pins.size() > 40) {
      for (const PinnedPage& page : pins) unpin(page);
      pins.clear();
    }
  }
  for (const PinnedPage& page : pins) unpin(page);
  EXPECT_EQ(bytes(1) + bytes(2) + bytes(3), pool->stats().used_bytes);
  EXPECT_GT(pool->use_of(1).evictions, 100u);
}

}  // namespace
}  // namespace peercached
