// Promotion from disk to pool: once per page, bounded, waiting callers first, right bytes only.

#include "engine/storage/disk_pages_fixture.h"

namespace peercached {
namespace {

class PromoterTest : public DiskPagesFixture {
 protected:
  // Opens with these pages on disk only.
  void open_with(uint64_t pages, uint64_t pool_bytes = 4 << 20) {
    open(pool_bytes, false);
    store(0, pages);
  }
  // Leaves these pages on disk only.
  void store(uint64_t first, uint64_t count) {
    for (uint64_t n = first; n < first + count; ++n) {
      ASSERT_TRUE(set(digest_of_page(n)));
      tier_->flush(Deadline::after_ms(0));
      evict(digest_of_page(n));
      ASSERT_TRUE(tier_->find(digest_of_page(n)));
    }
    ASSERT_EQ(pool_->stats().pins, 0u);
  }
};

TEST_F(PromoterTest, PromotedPageIsResidentAndPinnedWhileWanted) {
  open_with(1);
  const Digest digest = digest_of_page(0);
  EXPECT_EQ(record(digest), 'n');
  {
    const Promotions some =
        promoter_->promote({&digest, 1}, Urgency::somebody_waits, Deadline::after_ms(1'000));
    ASSERT_EQ(some.statuses[0], PromoteStatus::in_pool);
    EXPECT_EQ(pool_->stats().pins, 1u);
  }
  EXPECT_EQ(record(digest), 'r');
  EXPECT_EQ(pool_->stats().pins, 0u);
  EXPECT_EQ(promote(digest), PromoteStatus::in_pool);
  EXPECT_EQ(tier_->reads, 1u);
}

TEST_F(PromoterTest, PromotedPageIsReadDirectlyIntoItsSlot) {
  open_with(1);
  const Digest digest = digest_of_page(0);
  const Promotions some =
      promoter_->promote({&digest, 1}, Urgency::somebody_waits, Deadline::after_ms(1'000));
  ASSERT_EQ(some.statuses[0], PromoteStatus::in_pool);
  EXPECT_EQ(tier_->read_into, some.pages[0].payload());
}

TEST_F(PromoterTest, ConcurrentPromotesOfOnePageReadItOnce) {
  open_with(1);
  tier_->hang(true);
  std::vector<std::thread> threads;
  std::atomic<int> in_pool{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] { in_pool += promote(digest_of_page(0)) == PromoteStatus::in_pool; });
  }
  std::this_thread::yield();
  tier_->hang(false);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(in_pool, 6);
  EXPECT_EQ(tier_->reads, 1u);
}

TEST_F(PromoterTest, TheLaterPagesOfABatchNeverEvictItsEarlierOnes) {
  open_with(40, 1 << 20);
  std::vector<Digest> all;
  for (uint64_t n = 0; n < 40; ++n) all.push_back(digest_of_page(n));
  const Promotions some =
      promoter_->promote(all, Urgency::somebody_waits, Deadline::after_ms(1'000));
  size_t promoted = 0;
  while (promoted < all.size() && some.statuses[promoted] == PromoteStatus::in_pool) ++promoted;
  EXPECT_EQ(promoted, promoter_->batch_bytes_max() / kDiskPageBytes);
  for (size_t i = promoted; i < all.size(); ++i)
    EXPECT_EQ(some.statuses[i], PromoteStatus::not_now);
  for (size_t i = 0; i < promoted; ++i) EXPECT_TRUE(in_pool(all[i]));
}

TEST_F(PromoterTest, HungDiskCostsTheDeadlineAndLeavesNoReservation) {
  open_with(1);
  tier_->hang(true);
  EXPECT_EQ(promote(digest_of_page(0), 30), PromoteStatus::late);
  EXPECT_EQ(pool_->stats().reserved, 0u);
  EXPECT_EQ(record(digest_of_page(0)), 'n');
  tier_->hang(false);
  EXPECT_EQ(promote(digest_of_page(0)), PromoteStatus::in_pool);
}

// A hung disk would else be a miss for the second reader, and not an error.
TEST_F(PromoterTest, PageThatAnotherReaderGaveUpIsReadByTheOneThatWaits) {
  open_with(1);
  tier_->hang(true);
  std::thread hasty([&] { EXPECT_EQ(promote(digest_of_page(0), 200), PromoteStatus::late); });
  while (pool_->stats().reserved == 0) std::this_thread::yield();
  std::thread patient([&] { EXPECT_EQ(promote(digest_of_page(0)), PromoteStatus::in_pool); });
  hasty.join();
  tier_->hang(false);
  patient.join();
}

TEST_F(PromoterTest, PageRemovedDuringItsReadDoesNotComeBack) {
  open_with(1);
  const Digest digest = digest_of_page(0);
  tier_->before_read = [&] { remove(digest); };
  EXPECT_EQ(promote(digest), PromoteStatus::absent);
  // The page is removed after its read and before its commit.
  tier_->before_read = nullptr;
  store(0, 1);
  std::vector<PinnedPage> pages(1);
  const DiskPage source = *disk_->find(digest);
  const PageRequest request{digest, kDiskPageBytes};
  Reservation reservation;
  pool_->reserve({&request, 1}, nullptr, ns_->current().pool_slot, {&reservation, 1});
  pages[0] = reservation.page;
  remove(digest);
  disk_->promoted({&source, 1}, pages, true);
  EXPECT_FALSE(pages[0]);
  EXPECT_FALSE(in_pool(digest));
  EXPECT_EQ(record(digest), '-');
  // All pages are dropped, and one comes from the disk when the pool's are gone.
  store(0, 1);
  tier_->before_scan = [&] { EXPECT_EQ(promote(digest), PromoteStatus::in_pool); };
  disk_->drop_all();
  EXPECT_FALSE(in_pool(digest));
  EXPECT_FALSE(disk_->find(digest));
  // Pages that may have been removed elsewhere stay hidden until they are dropped.
  store(0, 1);
  std::vector<RecordRow> rows;
  disk_->hide_older(rows);
  tier_->before_scan = [&] { EXPECT_EQ(promote(digest), PromoteStatus::absent); };
  disk_->drop_all();
  EXPECT_FALSE(in_pool(digest));
}

TEST_F(PromoterTest, WarmingStartsAtTheFirstPageAndIsBounded) {
  open_with(60, 1 << 20);
  std::vector<Digest> all;
  for (uint64_t n = 0; n < 60; ++n) all.push_back(digest_of_page(n));
  promoter_->warm(all);
  const TimePoint until = Clock::now() + std::chrono::seconds(10);
  while (promoter_->stats().warmed + promoter_->stats().warm_dropped < 60) {
    ASSERT_LT(Clock::now(), until);
    std::this_thread::yield();
  }
  EXPECT_TRUE(in_pool(all[0]));
  EXPECT_LE(promoter_->stats().warmed, 2 * (1u << 20) / 4 / kDiskPageBytes);
}

TEST_F(PromoterTest, WarmingWaitsWhileReadersHaveMuchOfTheRoom) {
  open_with(9, 1 << 20);
  tier_->hang(true);
  std::vector<std::thread> readers;
  for (uint64_t n = 0; n < 2; ++n) {
    readers.emplace_back([&, n] { EXPECT_EQ(promote(digest_of_page(n)), PromoteStatus::in_pool); });
  }
  while (pool_->stats().reserved < 2) std::this_thread::yield();
  std::vector<Digest> later;
  for (uint64_t n = 2; n < 9; ++n) later.push_back(digest_of_page(n));
  promoter_->warm(later);
  while (promoter_->stats().warm_queued > 0) std::this_thread::yield();
  // Seven pages more than the readers' two would exceed half of the budget of sixteen.
  EXPECT_EQ(pool_->stats().reserved, 2u);
  tier_->hang(false);
  for (auto& thread : readers) thread.join();
  const TimePoint until = Clock::now() + std::chrono::seconds(10);
  while (promoter_->stats().warmed < 7) {
    ASSERT_LT(Clock::now(), until);
    std::this_thread::yield();
  }
}

TEST_F(PromoterTest, RecordOfAMissingPageIsWithdrawn) {
  open(4 << 20, false);
  RecordRow ghost;
  ghost.digest = digest_of_page(5);
  ghost.length = kDiskPageBytes;
  tell({&ghost, 1});
  EXPECT_EQ(record(ghost.digest), 'n');
  std::vector<RecordRow> rows;
  disk_->not_here({&ghost.digest, 1}, rows);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(rows[0].flags & kRecordWithdraw);
  EXPECT_EQ(record(ghost.digest), '-');
}

}  // namespace
}  // namespace peercached
