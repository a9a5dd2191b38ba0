// Removed pages stay removed. This holds after a crash during an eviction, and when a segment was
// unreadable for one run of the daemon.
#include <cerrno>
#include <cstring>
#include <fstream>

#include "deleting_io.h"
#include "disk_fixture.h"

namespace peercached::disk {
namespace {

// 19 pages fill a segment of 1 MiB and leave some room, so a restart alone evicts nothing.
constexpr uint32_t kLength = 48'000;

class DiskRemoval : public DiskFixture {
 protected:
  DiskRemoval() {
    config.sync = SyncPolicy::batch;
    times.probe_ms_min = times.probe_ms_max = 10;
  }
  ~DiskRemoval() override {
    if (io) io->die();
    close();  // before `io` goes: the tier uses it
  }
  void open_on(DeletingIo::Hold hold) {
    io = std::make_unique<DeletingIo>(attic.path(), hold);
    open(*io);
  }
  // Stores pages from `number` on until a segment must be evicted.
  void fill(uint64_t number = 0) {
    const auto full = [&] {
      const DiskStats stats = tier->stats();
      return stats.used_bytes + 2 * config.segment_bytes > config.size_bytes ||
             stats.segments_evicted > 0 || io->deleted();
    };
    for (; !full() && !HasFailure(); ++number) {
      ASSERT_LT(number, 3000u) << "never evicted anything";
      put(number, kLength);
      flush();
    }
  }
  // Page 1 is carried to another segment, but its write or its sync fails.
  void fail_to_carry(bool at_sync) {
    io = std::make_unique<DeletingIo>(attic.path(), DeletingIo::Hold::nothing);
    io->carry_fails_at_sync = at_sync;
    open(*io);
    store(0, kLength);
    store(1, kLength);
    io->failing_carry = digest_for(1);
    touch(1);
    fill(2);
    ASSERT_TRUE(eventually([&] { return evicted_digests().contains(digest_for(1)); }))
        << "its original is deleted, and the copy may get lost";
    EXPECT_FALSE(holds(1));
  }
  void remove_for_ever(uint64_t number) {
    remove(number);
    flush();
    EXPECT_EQ(tier->stats().removals_waiting, 0u);
  }

  TemporaryDirectory attic;
  std::unique_ptr<DeletingIo> io;
};

TEST_F(DiskRemoval, SurvivesAKillBeforeTheSegmentIsDeleted) {
  open_on(DeletingIo::Hold::before_unlink);
  fill();
  ASSERT_TRUE(eventually([&] { return io->waits(); }));
  remove_for_ever(1);
  io->die();
  close();
  open();
  EXPECT_FALSE(holds(1));
  EXPECT_EQ(read(2, kLength), PageStatus::ok) << "its segment is there";
}

TEST_F(DiskRemoval, SurvivesAPowerCutAfterTheSegmentIsDeleted) {
  open_on(DeletingIo::Hold::before_sync);
  fill();
  ASSERT_TRUE(eventually([&] { return io->deleted(); }));
  remove_for_ever(1);
  put(2, kLength, 1);
  flush();
  io->die();
  close();
  io->undo_deletions();
  open();
  EXPECT_FALSE(holds(1));
  EXPECT_EQ(read(2, kLength, 1), PageStatus::ok) << "replaced meanwhile";
  EXPECT_EQ(read(3, kLength), PageStatus::ok) << "its segment is there";
}

TEST_F(DiskRemoval, PagesAreReadUntilTheirSegmentsDeletionIsSynced) {
  open_on(DeletingIo::Hold::before_sync);
  fill();
  ASSERT_TRUE(eventually([&] { return io->waits(); }));
  EXPECT_EQ(read(1, kLength), PageStatus::ok);
  EXPECT_EQ(put(1, kLength), PutOutcome::present);
  EXPECT_EQ(tier->stats().pages_evicted, 0u);
}

TEST_F(DiskRemoval, UnsyncedDeletionIsRetriedAndCountedOnce) {
  io = std::make_unique<DeletingIo>(attic.path(), DeletingIo::Hold::nothing);
  io->failing_syncs = 3;
  open(*io);
  fill();
  ASSERT_TRUE(eventually([&] { return tier->stats().segments_evicted > 0; }));
  EXPECT_GT(io->syncs_after_unlink(), 3u);
  EXPECT_TRUE(eventually([&] { return tier->stats().state == DiskState::on; }));
  EXPECT_EQ(tier->stats().segments_evicted, 1u);
  EXPECT_TRUE(eventually([&] { return evicted_digests().contains(digest_for(1)); }));
  EXPECT_EQ(evicted_digests().size(), tier->stats().pages_evicted);
  EXPECT_EQ(evicted.size(), tier->stats().pages_evicted) << "each once";
  EXPECT_FALSE(holds(1));
}

TEST_F(DiskRemoval, LastsForAPageThatFailedToCarryForward) {
  fail_to_carry(/*at_sync=*/false);
  remove_for_ever(1);
  reopen();
  EXPECT_GT(tier->stats().recovery.walked, 0u) << "the segment with the copy was not sealed";
  EXPECT_FALSE(holds(1));
}

TEST_F(DiskRemoval, PageIsNotHeldWhoseCarriedCopyWasNotSynced) {
  for (const SyncPolicy sync : {SyncPolicy::segment, SyncPolicy::batch}) {
    config.sync = sync;
    fail_to_carry(/*at_sync=*/true);
    close();
    evicted.clear();
    std::filesystem::remove_all(config.path);
  }
}

TEST_F(DiskRemoval, LastsForAPageUnreadableAtTheStartBefore) {
  open();
  for (uint64_t i = 0; i < 30; ++i) store(i, kLength);
  close();
  io = std::make_unique<DeletingIo>(attic.path(), DeletingIo::Hold::nothing);
  io->unreadable_from = 300'000;  // this includes the footer
  io->unreadable_to = UINT64_MAX;
  open(*io);
  EXPECT_EQ(read(0, kLength), PageStatus::ok) << "as far as it can be read";
  EXPECT_FALSE(holds(10));
  EXPECT_EQ(read(29, kLength), PageStatus::ok) << "of the next segment";
  remove_for_ever(10);
  close();
  open();
  EXPECT_EQ(read(0, kLength), PageStatus::ok);
  EXPECT_FALSE(holds(10));
  EXPECT_EQ(read(29, kLength), PageStatus::ok);
}

TEST_F(DiskRemoval, BadBlockInASegmentWithoutFooterCostsOnlyItsPage) {
  open();
  for (uint64_t i = 0; i < 10; ++i) store(i, kLength);
  close();
  const auto footer = static_cast<std::streamoff>(std::filesystem::file_size(segment_files()[0]));
  std::fstream(segment_files()[0], std::ios::binary | std::ios::in | std::ios::out)
      .seekp(footer - 4096)
      .put('x');
  io = std::make_unique<DeletingIo>(attic.path(), DeletingIo::Hold::nothing);
  io->unreadable_from = 300'000;
  io->unreadable_to = 300'001;
  open(*io);
  EXPECT_EQ(tier->stats().recovery.pages, 9u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(holds(i), i != 5) << i;
  close();
  open();
  for (uint64_t i = 0; i < 10; ++i)
    EXPECT_EQ(read(i, kLength), i == 5 ? PageStatus::absent : PageStatus::ok) << i;
}

TEST_F(DiskRemoval, LastsForPagesInASegmentWithUnreadableHeader) {
  open();
  for (uint64_t i = 0; i < 30; ++i) store(i, kLength);
  close();
  io = std::make_unique<DeletingIo>(attic.path(), DeletingIo::Hold::nothing);
  io->unreadable_to = 4096;
  open(*io);
  EXPECT_EQ(tier->stats().recovery.rejected, 1u);
  EXPECT_GT(io->syncs_after_unlink(), 0u) << "not even a power cut brings it back";
  EXPECT_FALSE(holds(1));
  remove_for_ever(1);
  close();
  open();
  EXPECT_FALSE(holds(1));
  EXPECT_EQ(read(29, kLength), PageStatus::ok);
}

TEST_F(DiskRemoval, UnopenableSegmentRefusesTheStartAndLosesNoPage) {
  open();
  store(1, kLength);
  close();
  for (const int error : {EMFILE, EACCES}) {
    DeletingIo refusing(attic.path(), DeletingIo::Hold::nothing);
    refusing.open_error = -error;
    try {
      open(refusing);
      FAIL() << "opened without its segment";
    } catch (const DiskError& refused) {
      EXPECT_NE(std::string(refused.what()).find("segment-0000000001.log"), std::string::npos);
      EXPECT_NE(std::string(refused.what()).find(std::strerror(error)), std::string::npos);
    }
  }
  open();
  EXPECT_EQ(read(1, kLength), PageStatus::ok);
}

}  // namespace
}  // namespace peercached::disk
