// Housekeeping: what it is asked for happens, in its own time.

#include "engine/storage/janitor.h"

#include <functional>

#include "engine/storage/disk_pages_fixture.h"
#include "eventually.h"
#include "no_room.h"

namespace peercached {
namespace {

class JanitorTest : private JournalOnDisk, public DiskPagesFixture {
 protected:
  JanitorTest() : DiskPagesFixture(config_) {}
  void SetUp() override {
    open(4 << 20, false);
    holds_ = std::make_unique<HoldTable>(*pool_, 100, 1 << 20);
    retains_ = std::make_unique<RetainTable>(*pool_, 100);
  }
  void TearDown() override {
    janitor_.stop();
    retains_.reset();
    holds_.reset();
    DiskPagesFixture::TearDown();
  }

  void start() { janitor_.start({*pool_, *disk_, *holds_, *retains_, records_}); }

  std::unique_ptr<HoldTable> holds_;
  std::unique_ptr<RetainTable> retains_;
  RecordTable records_{1000, [] {}};
  Janitor janitor_;
};

TEST_F(JanitorTest, VoidNamespaceIsSweptEvenIfAskedBeforeTheStart) {
  const Digest digest = digest_of_page(1);
  ASSERT_TRUE(set(digest));
  uint32_t stale_slot = 0;
  ASSERT_TRUE(namespaces_.raise(ns_->id(), 1, stale_slot));
  janitor_.sweep_namespace(stale_slot);
  EXPECT_TRUE(in_pool(digest));
  start();
  EXPECT_TRUE(eventually([&] { return record(digest) == '-'; }));
  EXPECT_FALSE(in_pool(digest));
}

TEST_F(JanitorTest, PagesBelowTheNewEpochLeaveTheDisk) {
  const Digest digest = digest_of_page(1);
  ASSERT_TRUE(set(digest));
  tier_->flush(Deadline::after_ms(0));
  ASSERT_TRUE(tier_->find(digest));
  start();
  janitor_.drop_from_disk(ns_->id(), ns_->current().epoch + 1);
  EXPECT_TRUE(eventually([&] { return !tier_->find(digest); }));
}

TEST_F(JanitorTest, HoldsEndWhenTheirTimeIsOver) {
  const Digest digest = digest_of_page(1);
  ASSERT_TRUE(set(digest));
  start();
  uint8_t held = 0;
  holds_->hold({&digest, 1}, Deadline::after_ms(600'000).at, {&held, 1});
  janitor_.watch_holds();
  const Digest other = digest_of_page(2);
  ASSERT_TRUE(set(other));
  holds_->hold({&other, 1}, Deadline::after_ms(1).at, {&held, 1});
  janitor_.watch_holds();
  EXPECT_TRUE(eventually([&] { return holds_->stats().pages == 1; }));
}

TEST_F(JanitorTest, RecordsOfAHolderThatHasLeftAreSwept) {
  constexpr HolderIndex kGone = 5;
  RecordRow row{.digest = {5, 6}, .offset = 4096, .generation = 1, .length = 100};
  row.flags = kRecordResident;
  records_.ask(kGone, Clock::now());
  ASSERT_EQ(records_.take(kGone, {.rows = {&row, 1}, .anew = true, .more = true}),
            RecordTable::Taken::ok);
  records_.forget(kGone);
  ASSERT_EQ(records_.shard_stats().dead_entries, 1u);
  start();
  janitor_.sweep_records();
  EXPECT_TRUE(eventually([&] { return records_.shard_stats().dead_entries == 0; }));
}

TEST_F(JanitorTest, WaitingJournalEntriesAreWrittenOnceThereIsRoom) {
  const Digest digest = digest_of_page(1);
  ASSERT_TRUE(set(digest));
  {
    const NoRoom full(4096);
    std::vector<RecordRow> rows;
    const Removed removed{digest, 1};
    ASSERT_FALSE(disk_->remove({&removed, 1}, rows));
    start();
    janitor_.write_removals();
  }
  EXPECT_TRUE(eventually([&] { return journal_.stats().waiting == 0; }));
}

}  // namespace
}  // namespace peercached
