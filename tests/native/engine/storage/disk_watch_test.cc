// A disk's trouble is logged when it begins and when it ends, and not in between.
#include "engine/storage/disk_watch.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

class DiskWatchTest : public ::testing::Test {
 protected:
  // The log lines after the quiet time of every kind of notice.
  std::vector<std::string> told() {
    watch.notify(stats, notices);
    return notices.take(now += 2 * Notices::kQuiet);
  }

  DiskWatch watch{"/mnt/disk"};
  Notices notices;
  DiskStats stats;
  TimePoint now = Clock::now();
};

TEST_F(DiskWatchTest, HealthyDiskIsNotReported) { EXPECT_TRUE(told().empty()); }

TEST_F(DiskWatchTest, TroubleIsReportedAtItsBeginAndEnd) {
  for (const DiskState trouble : {DiskState::read_only, DiskState::stalled}) {
    const bool stops = trouble == DiskState::read_only;
    stats.state = trouble;
    stats.why = stats.why_stopped = "it is not well";
    stats.write_stops += stops ? 1 : 0;
    const std::string begin = stops
                                  ? "the disk tier at /mnt/disk takes no new pages: it is not well"
                                  : "the disk tier at /mnt/disk does not answer: it is not well";
    const auto sentences = told();
    ASSERT_EQ(sentences.size(), 1u);
    EXPECT_TRUE(sentences[0].starts_with(begin)) << sentences[0];
    EXPECT_TRUE(told().empty()) << "once";
    stats.state = DiskState::on;
    stats.why.clear();
    EXPECT_EQ(told(), std::vector<std::string>{"the disk tier at /mnt/disk is in use again"});
  }
}

TEST_F(DiskWatchTest, StopBetweenTwoLooksIsReported) {
  stats.write_stops = 1;
  stats.why_stopped = "no space";
  EXPECT_EQ(told(), std::vector<std::string>{"the disk tier at /mnt/disk is in use again; for a "
                                             "moment it took no new pages: no space"});
  EXPECT_TRUE(told().empty()) << "once";
}

TEST_F(DiskWatchTest, EachLookReportsOnlyNewDamage) {
  stats.recovery.rejected = 2;
  stats.recovery.corrupt = 3;
  auto sentences = told();
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_TRUE(sentences[0].starts_with("dropped 3 damaged")) << sentences[0];
  EXPECT_TRUE(sentences[1].starts_with("deleted 2 segment files")) << sentences[1];
  stats.reads_corrupt = 4;
  stats.reads_failed = 1;
  sentences = told();
  ASSERT_EQ(sentences.size(), 1u);
  EXPECT_TRUE(sentences[0].starts_with("dropped 5 damaged")) << sentences[0];
  EXPECT_TRUE(told().empty());
}

TEST_F(DiskWatchTest, IsDueOnceASecond) {
  EXPECT_TRUE(watch.due(now));
  EXPECT_FALSE(watch.due(now + DiskWatch::kTellEvery / 2));
  EXPECT_TRUE(watch.due(now + DiskWatch::kTellEvery));
}

}  // namespace
}  // namespace peercached
