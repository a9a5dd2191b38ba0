// How packets of a queue pair are marked and addressed.

#include <gtest/gtest.h>

#include <algorithm>

#include "transfer/rdma/rail.h"

namespace peercached::rdma {
namespace {

TEST(RailPath, HasTheConfiguredServiceLevelAndTrafficClass) {
  ChannelEnd other;
  other.lid = 77;
  other.gid[15] = 9;
  LinkSettings settings;
  settings.service_level = 5;
  settings.traffic_class = 104;
  settings.hop_limit = 32;
  const ibv_ah_attr path = path_to(other, 2, 3, settings);
  EXPECT_EQ(path.sl, 5);
  EXPECT_EQ(path.grh.traffic_class, 104);
  EXPECT_EQ(path.grh.hop_limit, 32);
  EXPECT_EQ(path.port_num, 2);
  EXPECT_EQ(path.grh.sgid_index, 3);
  EXPECT_EQ(path.dlid, 77);
  EXPECT_TRUE(std::equal(other.gid.begin(), other.gid.end(), path.grh.dgid.raw));
}

}  // namespace
}  // namespace peercached::rdma
