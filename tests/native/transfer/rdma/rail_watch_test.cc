// A rail's trouble is logged when it begins and when it ends, and not in between.
#include "transfer/rdma/rail_watch.h"

#include <gtest/gtest.h>

namespace peercached::rdma {
namespace {

class RailWatchTest : public ::testing::Test {
 protected:
  // The log lines after the quiet time of every kind of notice.
  std::vector<std::string> told() {
    watch.notify(rails, notices);
    return notices.take(now += 2 * Notices::kQuiet);
  }
  using Told = std::vector<std::string>;

  RailWatch watch;
  Notices notices;
  std::vector<RailNow> rails{{"mlx5_0:1", "", {}, {}}, {"mlx5_1:1", "", {}, {}}};
  TimePoint now = Clock::now();
};

TEST_F(RailWatchTest, RailDownAndUpAreReportedOnceEach) {
  EXPECT_TRUE(told().empty());
  rails[1].why_down = "its port is not active";
  EXPECT_EQ(told(), Told{"rail 1 (mlx5_1:1) is down: its port is not active"});
  EXPECT_TRUE(told().empty());
  rails[1].why_down.clear();
  EXPECT_EQ(told(), Told{"rail 1 (mlx5_1:1) is up again"});
}

TEST_F(RailWatchTest, RailDownAtTheStartIsReported) {
  rails[0].why_down = "its port is not active";
  EXPECT_EQ(told(), Told{"rail 0 (mlx5_0:1) is down: its port is not active"});
}

TEST_F(RailWatchTest, ChangedGidAndMtuAreReported) {
  told();
  rails[0].address.gid.index = 5;
  rails[0].address.gid.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7};
  rails[0].address.mtu = 5;
  EXPECT_EQ(told(), Told{"address of rail 0 (mlx5_0:1) changed: now GID 5 (10.0.0.7), MTU 4096"});
}

TEST_F(RailWatchTest, UnreachedAndRecoveredPeersAreReported) {
  told();
  rails[0].doubted = {{"a", "no answer for 537 ms"}, {"b", "no answer for 600 ms"}};
  EXPECT_EQ(told(), Told{"rail 0 (mlx5_0:1) does not reach a, b: no answer for 537 ms"});
  rails[0].doubted["c"] = "refused";
  EXPECT_EQ(told(), Told{"rail 0 (mlx5_0:1) does not reach c: refused"});
  rails[0].doubted.erase("a");
  EXPECT_EQ(told(), Told{"rail 0 (mlx5_0:1) reaches a again"});
}

}  // namespace
}  // namespace peercached::rdma
