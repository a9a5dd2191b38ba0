// The file of a warm pool: it has one owner, and unsuitable content is dropped or refused.
#include <fcntl.h>
#include <sys/file.h>

#include "pool/pool_file_fixture.h"

namespace peercached {
namespace {

class PoolFileJudged : public PoolFileFixture {
 protected:
  // The pool starts empty, names `word` in its reason, and works.
  void expect_fresh(const std::string& word) {
    reopen();
    const RecoveryReport& report = pool->recovery();
    EXPECT_NE(report.why_fresh.find(word), std::string::npos) << report.why_fresh;
    EXPECT_EQ(report.pages, 0u);
    EXPECT_FALSE(held(1));
    set_page(2, 8192);
    reopen();
    EXPECT_EQ(pool->recovery().why_fresh, "");
    EXPECT_TRUE(right(2));
  }
  void leave_a_page() {
    reopen();
    EXPECT_EQ(pool->recovery().why_fresh, "");
    set_page(1, 8192);
    pool.reset();
  }
};

TEST_F(PoolFileJudged, AnotherSizeIsFreshAndSaysBothSizes) {
  leave_a_page();
  config.size_bytes = 6 * kMiB;
  expect_fresh("pool_size = 4194304 bytes (4 MiB), which is now 6291456");
}

TEST_F(PoolFileJudged, ASmallerSizeIsFresh) {
  leave_a_page();
  config.size_bytes = 2 * kMiB;
  expect_fresh("pool_size");
}

TEST_F(PoolFileJudged, AnotherNodeOrSecretIsFresh) {
  leave_a_page();
  config.file.identity[3] = std::byte{9};
  expect_fresh("another cluster secret");
}

TEST_F(PoolFileJudged, AnotherFormatIsFresh) {
  leave_a_page();
  flip(file_bytes() - 4096 + 8);
  expect_fresh("another version");
}

TEST_F(PoolFileJudged, ADamagedSuperblockIsFresh) {
  leave_a_page();
  flip(file_bytes() - 4096 + 40);
  expect_fresh("damaged");
}

TEST_F(PoolFileJudged, UnknownEpochsMakeItFresh) {
  leave_a_page();
  config.file.why_unusable = "nobody knows what was cleared";
  reopen();
  EXPECT_EQ(pool->recovery().why_fresh, "nobody knows what was cleared");
  EXPECT_FALSE(held(1));
}

TEST_F(PoolFileJudged, DroppedFileIsZeroed) {
  leave_a_page();
  config.file.identity[3] = std::byte{9};
  reopen();
  for (uint64_t at = 0; at < pool->size_bytes(); ++at)
    ASSERT_EQ(pool->base()[at], std::byte{0}) << at;
}

TEST_F(PoolFileJudged, ASecondDaemonIsRefused) {
  reopen();
  const int other = ::open(path.c_str(), O_RDWR);
  ASSERT_NE(flock(other, LOCK_EX | LOCK_NB), 0);
  close(other);
  try {
    Pool second(config, nullptr);
    FAIL() << "two pools in one file";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("in use by another daemon"), std::string::npos);
  }
  set_page(1, 8192);
  reopen();
  EXPECT_TRUE(right(1)) << "the refused one did no harm";
}

TEST_F(PoolFileJudged, SomethingElseIsNotOverwritten) {
  std::ofstream(path) << std::string(8192, 'x');
  EXPECT_NE(refusal().find("not a pool file"), std::string::npos) << refusal();
  std::ofstream(path) << "short";
  EXPECT_NE(refusal().find("is something else, 5 bytes"), std::string::npos) << refusal();
  EXPECT_EQ(file_bytes(), 5u);
}

TEST_F(PoolFileJudged, FileModeIsMadePrivate) {
  close(::open(path.c_str(), O_RDWR | O_CREAT, 0666));
  chmod(path.c_str(), 0666);
  reopen();
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
}

TEST_F(PoolFileJudged, PathOutsideMemoryFileSystemsIsRefused) {
  config.file.path = "/proc/self/cmdline";
  EXPECT_NE(refusal(), "");
  config.file.path = "/tmp/peercached-test-" + std::to_string(getpid());
  struct statfs where {};
  if (statfs("/tmp", &where) == 0 && where.f_type == 0x01021994) GTEST_SKIP() << "/tmp is tmpfs";
  EXPECT_NE(refusal().find("neither on tmpfs nor on hugetlbfs"), std::string::npos) << refusal();
  unlink(config.file.path.c_str());
}

TEST_F(PoolFileJudged, HugePagesNeedAHugetlbfs) {
  config.huge_pages = true;
  EXPECT_NE(refusal().find("is on tmpfs, but huge_pages is on"), std::string::npos) << refusal();
}

TEST_F(PoolFileJudged, NeverMoreThanTheFileSystemHas) {
  config.size_bytes = uint64_t{1} << 45;
  EXPECT_NE(refusal().find("its file system has only"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace peercached
