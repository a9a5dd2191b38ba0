// Someone takes away, replaces or empties the directory under a running tier.
#include <fstream>

#include "disk_fixture.h"

namespace peercached::disk {
namespace {

namespace fs = std::filesystem;

class FolderWatchTest : public DiskFixture {
 protected:
  FolderWatchTest() {
    times.probe_ms_min = 10;
    open();
    for (uint64_t i = 0; i < 5; ++i) store(i, 50'000);
  }
  ~FolderWatchTest() override { close(); }

  void expect_stopped(const std::string& mention) {
    ASSERT_TRUE(eventually([&] { return tier->stats().state == DiskState::read_only; }));
    EXPECT_NE(tier->stats().why.find(mention), std::string::npos) << tier->stats().why;
    EXPECT_EQ(put(100, 50'000), PutOutcome::skipped_off);
    for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(read(i, 50'000), PageStatus::ok) << i;
  }

  const std::string elsewhere = folder.path() + "/elsewhere";
};

TEST_F(FolderWatchTest, ReplacementDirectoryGetsNoFiles) {
  fs::rename(config.path, elsewhere);
  fs::create_directory(config.path);
  // More than a segment, before the tier checks its directory. It must go to the tier's own files.
  for (uint64_t i = 10; i < 40; ++i) put(i, 50'000);
  tier->flush(Deadline::after_ms(20'000));
  EXPECT_TRUE(fs::is_empty(config.path));
  expect_stopped("another directory is at that path now");
  EXPECT_TRUE(fs::is_empty(config.path));
}

TEST_F(FolderWatchTest, TierResumesWhenTheDirectoryReturns) {
  fs::rename(config.path, elsewhere);
  expect_stopped("the directory is gone");
  fs::rename(elsewhere, config.path);
  EXPECT_TRUE(eventually([&] { return tier->stats().state == DiskState::on; }));
  store(100, 50'000);
  reopen();
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(read(i, 50'000), PageStatus::ok) << i;
  EXPECT_EQ(read(100, 50'000), PageStatus::ok);
}

TEST_F(FolderWatchTest, ForeignlyDeletedSegmentsAreReadUntilARestart) {
  for (const auto& file : segment_files()) fs::remove(file);
  expect_stopped("its files were deleted by somebody else");
  reopen();
  for (uint64_t i = 0; i < 5; ++i) EXPECT_FALSE(holds(i)) << i;
  store(0, 50'000);
}

TEST_F(FolderWatchTest, DeletedLockFileStopsWriting) {
  fs::remove(config.path + "/lock");
  expect_stopped("its files were deleted by somebody else");
}

TEST_F(FolderWatchTest, TierStartsAfreshInAFolderThatWasEmptiedUnderIt) {
  for (const auto& file : fs::directory_iterator(config.path)) fs::remove(file);
  // More than a segment, before the tier checks its directory.
  for (uint64_t i = 10; i < 40; ++i) put(i, 50'000);
  tier->flush(Deadline::after_ms(20'000));
  ASSERT_FALSE(segment_files().empty());
  expect_stopped("its files were deleted by somebody else");
  reopen();
  EXPECT_NE(tier->stats().recovery.emptied.find("had been deleted"), std::string::npos);
  for (uint64_t i = 0; i < 40; ++i) EXPECT_FALSE(holds(i)) << i;
  store(0, 50'000);
  reopen();
  EXPECT_EQ(read(0, 50'000), PageStatus::ok);
  EXPECT_EQ(tier->stats().recovery.emptied, "");
}

TEST_F(FolderWatchTest, SegmentsOfAnotherIdentityWithoutSuperblockAreRefused) {
  close();
  fs::remove(config.path + "/format");
  config.identity.fill(std::byte{7});
  const size_t segments = segment_files().size();
  EXPECT_THROW(open(), DiskError);
  EXPECT_EQ(segment_files().size(), segments);
}

TEST_F(FolderWatchTest, ForeignFileDoesNotExhaustSegmentNumbers) {
  close();
  std::ofstream(config.path + "/segment-4294967295.log") << "not a segment";
  open();
  store(5, 50'000);
  reopen();
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(read(i, 50'000), PageStatus::ok) << i;
}

}  // namespace
}  // namespace peercached::disk
