// The records that the directory gets when pages move between pool and disk.

#include <functional>
#include <future>

#include "engine/storage/disk_pages_fixture.h"
#include "eventually.h"
#include "no_room.h"

namespace peercached {
namespace {

using DiskPagesTest = DiskPagesFixture;

TEST_F(DiskPagesTest, EvictedPageOnDiskBecomesNonResidentOtherwiseWithdrawn) {
  open(4 << 20, false);
  const Digest written = digest_of_page(1), skipped = digest_of_page(2);
  ASSERT_TRUE(set(written));
  tier_->write_all();
  tier_->queue_max = 0;
  ASSERT_TRUE(set(skipped));
  EXPECT_EQ(record(written), 'r');
  evict(written);
  evict(skipped);
  EXPECT_EQ(record(written), 'n');
  EXPECT_EQ(record(skipped), '-');
}

TEST_F(DiskPagesTest, OfAPageGivenAwayOnlyTheRecordOfItsCopyOnDiskStays) {
  open(4 << 20, false);
  const Digest written = digest_of_page(1), skipped = digest_of_page(2), anew = digest_of_page(3);
  ASSERT_TRUE(set(written));
  tier_->write_all();
  tier_->queue_max = 0;
  ASSERT_TRUE(set(skipped));
  ASSERT_TRUE(set(anew));
  const Digest all[] = {written, skipped, anew};
  std::vector<PinnedPage> pages(3);
  std::vector<RecordRow> rows(3);
  pool_->pin(all, nullptr, false, pages);
  pool_->rows_of(pages, rows);
  pool_->unpin(pages);
  remove(anew);
  ASSERT_TRUE(set(anew));
  disk_->give_away(rows);
  EXPECT_EQ(record(written), 'n');
  EXPECT_EQ(record(skipped), '-');
  EXPECT_EQ(record(anew), 'r');
  EXPECT_TRUE(in_pool(written)) << "for readers that know the former record";
}

TEST_F(DiskPagesTest, APageThatWaitsForItsWriteIsNotEvicted) {
  open(1 << 20, false);
  const Digest waiting = set_one();
  tier_->queue_max = 1;
  for (uint64_t n = 2; n < 200; ++n) ASSERT_TRUE(set(digest_of_page(n)));
  EXPECT_TRUE(in_pool(waiting));
  ASSERT_TRUE(tier_->write_one());
  for (uint64_t n = 200; n < 400; ++n) ASSERT_TRUE(set(digest_of_page(n)));
  EXPECT_FALSE(in_pool(waiting));
  EXPECT_EQ(record(waiting), 'n');
}

TEST_F(DiskPagesTest, LateWriteLeavesAPageSetAgainResident) {
  open(4 << 20, false);
  const Digest digest = set_one();
  evict(digest);
  EXPECT_EQ(record(digest), '-') << "it is not on disk yet";
  ASSERT_TRUE(set(digest));
  tier_->write_all();
  EXPECT_EQ(record(digest), 'r');
  evict(digest);
  EXPECT_EQ(record(digest), 'n');
}

TEST_F(DiskPagesTest, PageRemovedBeforeItsWriteIsNotWritten) {
  open(4 << 20, false);
  const Digest digest = set_one();
  tier_->write_all();
  tier_->lose(digest);
  PinnedPage page;
  pool_->pin({&digest, 1}, nullptr, false, {&page, 1});
  ASSERT_TRUE(page);
  remove(digest);
  write_behind(page);
  EXPECT_FALSE(tier_->write_one());
  EXPECT_FALSE(tier_->find(digest));
}

TEST_F(DiskPagesTest, PageEvictedBeforeItsWriteBecomesNonResidentOnceWritten) {
  open(4 << 20, false);
  const Digest digest = set_one();
  evict(digest);
  tier_->write_all();
  EXPECT_EQ(record(digest), 'n');
}

TEST_F(DiskPagesTest, PageOnDiskIsNotWithdrawnAfterAnEarlierMiss) {
  open(4 << 20, false);
  const Digest digest = set_one();
  tier_->write_all();
  evict(digest);
  std::vector<RecordRow> rows;
  disk_->not_here({&digest, 1}, rows);
  EXPECT_TRUE(rows.empty());
  EXPECT_EQ(record(digest), 'n');
}

TEST_F(DiskPagesTest, PageLostByTheDiskIsWithdrawnUnlessInPool) {
  open(4 << 20);
  const Digest disk = digest_of_page(1), warm = digest_of_page(2);
  ASSERT_TRUE(set(disk));
  ASSERT_TRUE(set(warm));
  tier_->flush(Deadline::after_ms(0));
  while (!tier_->find(disk) || !tier_->find(warm)) std::this_thread::yield();
  evict(disk);
  tier_->lose(disk);
  tier_->lose(warm);
  EXPECT_EQ(record(disk), '-');
  EXPECT_EQ(record(warm), 'r');
  evict(warm);
  EXPECT_EQ(record(warm), '-');
}

TEST_F(DiskPagesTest, RemovedPageIsGoneEvenWithItsWritePending) {
  open(4 << 20, false);
  const Digest digest = set_one();
  remove(digest);
  tier_->write_all();
  EXPECT_FALSE(tier_->find(digest));
  EXPECT_EQ(record(digest), '-');
  // All pages are dropped while it is neither in the pool nor on the disk yet.
  ASSERT_TRUE(set(digest));
  evict(digest);
  disk_->drop_all();
  tier_->write_all();
  EXPECT_FALSE(disk_->find(digest));
  EXPECT_EQ(record(digest), '-');
  ASSERT_TRUE(set(digest));
  tier_->write_all();
  evict(digest);
  remove(digest);
  EXPECT_EQ(record(digest), '-');
  EXPECT_EQ(promote(digest), PromoteStatus::absent);
}

TEST_F(DiskPagesTest, PageOfAClearedNamespaceIsNeitherFoundNorPublished) {
  open(4 << 20, false);
  const Digest digest = set_one();
  tier_->write_all();
  uint32_t stale = 0;
  ASSERT_TRUE(namespaces_.raise(ns_->id(), 1, stale));
  EXPECT_FALSE(disk_->find(digest));
  evict(digest);
  EXPECT_EQ(record(digest), '-');
  EXPECT_EQ(promote(digest), PromoteStatus::absent);
  disk_->drop_below({{ns_->id(), 1}});
  EXPECT_FALSE(tier_->find(digest));
}

TEST_F(DiskPagesTest, ScanReportsPoolPagesResidentAndDiskPagesNonResident) {
  open(4 << 20, false);
  for (uint64_t n = 0; n < 8; ++n) ASSERT_TRUE(set(digest_of_page(n)));
  tier_->write_all();
  for (uint64_t n = 0; n < 4; ++n) evict(digest_of_page(n));
  std::map<Digest, int> seen;
  DiskPages::Scan scan = disk_->begin_scan();
  std::vector<RecordRow> rows;
  while (disk_->scan(scan, rows)) {
  }
  for (const RecordRow& row : rows) seen[row.digest] += row.flags & kRecordResident ? 100 : 1;
  for (uint64_t n = 0; n < 8; ++n) EXPECT_EQ(seen[digest_of_page(n)], n < 4 ? 1 : 100) << n;
}

TEST_F(DiskPagesTest, WithoutADiskAnEvictedPageIsWithdrawn) {
  open(4 << 20);
  DiskPages none(*pool_, namespaces_, journal_,
                 [this](std::span<const RecordRow> rows) { tell(rows); });
  const Digest digest = set_one();
  std::vector<RecordRow> rows;
  pool_->remove({&digest, 1}, rows);
  none.left_pool(rows);
  EXPECT_EQ(record(digest), '-');
  EXPECT_FALSE(none.enabled());
}

// All operations at once on few pages. Once they stop, the owner's records must match. A ghost (a
// record without a page) or a lost page would stay until a resync.
TEST_F(DiskPagesTest, OwnerRecordsMatchPoolAndDiskAfterRandomOperations) {
  open(1 << 20);
  constexpr uint64_t kPages = 96;
  constexpr int kRounds = 4'000;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < kRounds; ++round) {
        const Digest digest = digest_of_page(random() % kPages);
        switch (random() % 8) {
          case 0:
          case 1:
          case 2:
            set(digest);
            break;
          case 3:
          case 4:
            promote(digest, 1'000);
            break;
          case 5:
            tier_->lose(digest);
            break;
          case 6:
            evict(digest);
            break;
          case 7:
            remove(digest);
            break;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  while (tier_->stats().queued_pages > 0 || pool_->stats().pins > 0) std::this_thread::yield();
  std::map<Digest, RecordRow> truth;
  const auto state = [&](const Digest& digest) {
    const auto known = truth.find(digest);
    return known == truth.end() ? '-' : known->second.flags & kRecordResident ? 'r' : 'n';
  };
  const auto look = [&] {
    truth.clear();
    DiskPages::Scan scan = disk_->begin_scan();
    std::vector<RecordRow> rows;
    while (disk_->scan(scan, rows)) {
    }
    for (const RecordRow& row : rows) EXPECT_TRUE(truth.emplace(row.digest, row).second);
  };
  const auto differ = [&] {
    uint64_t differences = 0;
    for (uint64_t n = 0; n < kPages; ++n) {
      const Digest digest = digest_of_page(n);
      differences += record(digest) != state(digest) ? 1 : 0;
    }
    return differences > 0;
  };
  // The pool's evictor tells of a page a moment after it has dropped it.
  const TimePoint until = Clock::now() + std::chrono::seconds(20);
  for (look(); differ() && Clock::now() < until; look()) std::this_thread::yield();
  for (uint64_t n = 0; n < kPages; ++n) {
    const Digest digest = digest_of_page(n);
    const auto known = truth.find(digest);
    const char wanted = state(digest);
    EXPECT_EQ(record(digest), wanted) << n;
    std::vector<RecordRow> rows;
    shard_.lookup({&digest, 1}, rows);
    if (!rows.empty() && wanted == 'r') {
      EXPECT_EQ(rows[0].generation, known->second.generation);
    }
    if (!rows.empty()) {
      EXPECT_EQ(rows[0].length, known->second.length) << n;
      EXPECT_EQ(rows[0].check, known->second.check) << n;
    }
  }
}

class DiskPagesWithAJournal : private JournalOnDisk, public DiskPagesFixture {
 protected:
  DiskPagesWithAJournal() : DiskPagesFixture(config_) {}
};

TEST_F(DiskPagesWithAJournal, OtherPagesDoNotWaitForAStateDirThatHangs) {
  const Digest replaced = digest_of_page(1), other = digest_of_page(2);
  std::vector<RecordRow> rows;
  const std::function<void()> writers[] = {[&] { set(replaced, 4096); },
                                           [&] { disk_->hide_older(rows); }};
  open(4 << 20, false);
  ASSERT_TRUE(set(replaced));
  tier_->write_all();
  for (const auto& write : writers) {
    Hanging state_dir(4096);
    auto writer = std::async(std::launch::async, write);
    ASSERT_TRUE(eventually([&] { return state_dir.hangs(); }));
    auto others = std::async(std::launch::async, [&] {
      set(other);
      evict(other);
    });
    EXPECT_EQ(others.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    state_dir.release();
  }
}

// A restart drops pages with an earlier position than the entry for their key.
TEST_F(DiskPagesWithAJournal, PageThatTwoSetsReplaceIsBehindTheEntryOfTheFirst) {
  const Digest replaced = digest_of_page(1);
  open(4 << 20, false);
  ASSERT_TRUE(set(replaced));
  tier_->write_all();
  {
    Hanging state_dir(4096);
    auto removing = std::async(std::launch::async, [&] { remove(digest_of_page(2)); });
    ASSERT_TRUE(eventually([&] { return state_dir.hangs(); }));
    auto first = std::async(std::launch::async, [&] { return set(replaced, 4096); });
    // It has let go of the old page, and waits for the journal.
    ASSERT_TRUE(eventually([&] { return !disk_->find(replaced); }));
    ASSERT_TRUE(set(replaced, 4096));
    tier_->write_all();
    ASSERT_TRUE(disk_->find(replaced));
    state_dir.release();
    ASSERT_TRUE(first.get());
  }
  tier_->write_all();
  const auto found = disk_->find(replaced);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->length, 4096u);
  EXPECT_EQ(found->set_at, journal_.last());
}

TEST_F(DiskPagesWithAJournal, PageWhoseSetHangsIsHiddenWithAllOlderOnes) {
  const Digest replaced = digest_of_page(1);
  open(4 << 20, false);
  ASSERT_TRUE(set(replaced));
  tier_->write_all();
  std::vector<RecordRow> rows;
  Hanging state_dir(4096);
  auto setting = std::async(std::launch::async, [&] { return set(replaced, 4096); });
  ASSERT_TRUE(eventually([&] { return state_dir.hangs(); }));
  auto hiding = std::async(std::launch::async, [&] { return disk_->hide_older(rows); });
  EXPECT_TRUE(eventually([&] { return !in_pool(replaced); })) << "it may be removed elsewhere";
  state_dir.release();
  EXPECT_TRUE(setting.get());
  hiding.get();
  tier_->write_all();
  EXPECT_FALSE(disk_->find(replaced));
}

TEST_F(DiskPagesWithAJournal, HeldBackPagesAreHiddenEvenIfTheJournalHasNoRoom) {
  open(4 << 20, false);
  const Digest digest = set_one();
  tier_->write_all();
  ASSERT_TRUE(disk_->find(digest));
  {
    const NoRoom full(4096);
    std::vector<RecordRow> rows;
    EXPECT_FALSE(disk_->hide_older(rows));
  }
  EXPECT_FALSE(disk_->find(digest)) << "it may have been removed elsewhere";
  disk_->release();
  EXPECT_TRUE(disk_->find(digest));
}

}  // namespace
}  // namespace peercached
