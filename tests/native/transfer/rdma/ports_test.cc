// Selection of RDMA ports as rails and of their addresses, and the errors if there are none.
#include "transfer/rdma/ports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "says.h"

namespace peercached::rdma {
namespace {

Gid gid(const char* address) {
  Gid made{};
  if (::inet_pton(AF_INET6, address, made.data()) != 1) {
    made[10] = made[11] = 0xff;
    EXPECT_EQ(::inet_pton(AF_INET, address, made.data() + 12), 1) << address;
  }
  return made;
}

// GIDs in the order of RoCE devices: link-local and IPv4, each as version 1 and 2.
std::vector<GidEntry> roce_gids(const char* address) {
  return {{gid("fe80::1"), 0, false, "eth0"},
          {gid("fe80::1"), 1, true, "eth0"},
          {gid(address), 2, false, "eth0"},
          {gid(address), 3, true, "eth0"}};
}

Port roce(std::string device, const char* address = "10.0.0.1", double gbps = 400) {
  Port port;
  port.device = std::move(device);
  port.active = port.ethernet = true;
  port.rate_gbps = gbps;
  port.gids = roce_gids(address);
  return port;
}

std::vector<std::string> names(const std::vector<Port>& rails) {
  std::vector<std::string> all;
  for (const Port& rail : rails) all.push_back(rail.device + ":" + std::to_string(rail.number));
  return all;
}

std::string why_refused(const std::vector<Port>& ports, const RailPolicy& policy = {}) {
  try {
    choose_rails(ports, policy);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

int chosen_gid(const Port& port, const RailPolicy& policy = {}) {
  return choose_gid(port, policy).value().index;
}

using Names = std::vector<std::string>;

TEST(Ports, RoceV2AndIpv4GoBeforeIpv6AndLinkLocal) {
  Port port = roce("mlx5_0");
  EXPECT_EQ(chosen_gid(port), 3);
  port.gids = {{gid("fe80::1"), 0, true, ""}, {gid("fd00::1"), 1, true, ""}};
  EXPECT_EQ(chosen_gid(port), 1);
  port.gids.pop_back();
  EXPECT_EQ(chosen_gid(port), 0);
  // An IPv4 address may also be link-local.
  port.gids.push_back({gid("169.254.7.7"), 1, true, ""});
  EXPECT_EQ(chosen_gid(port), 1);
  port.gids.push_back({gid("fd00::1"), 2, true, ""});
  EXPECT_EQ(chosen_gid(port), 2);
}

TEST(Ports, UsedGidIsKeptUnlessBetterExistsOrItVanishes) {
  Port port = roce("mlx5_0");
  const GidEntry used{gid("10.0.0.1"), 7, true, "eth0"};
  port.gids = {{gid("10.0.0.2"), 1, true, "eth0"}, used};
  EXPECT_EQ(choose_gid(port, {}, &used), used);
  EXPECT_EQ(choose_gid(port, {.device_names = {}, .host = "10.0.0.2"}, &used)->index, 1);
  port.gids.pop_back();
  EXPECT_EQ(choose_gid(port, {}, &used)->index, 1);
  port.gids = {{gid("10.0.0.1"), 9, true, "eth0"}};  // the address was removed and added again
  EXPECT_EQ(choose_gid(port, {}, &used)->index, 9);
  port.gids.clear();
  EXPECT_FALSE(choose_gid(port, {}, &used));
}

TEST(Ports, GidOfTheNodesOwnAddressIsPreferred) {
  Port port = roce("mlx5_0");
  port.gids.push_back({gid("10.9.9.9"), 5, true, "vlan9"});
  port.gids.push_back({gid("fd00::7"), 6, true, "eth0"});
  EXPECT_EQ(chosen_gid(port), 3);
  EXPECT_EQ(chosen_gid(port, {.device_names = {}, .host = "10.9.9.9"}), 5);
  EXPECT_EQ(chosen_gid(port, {.device_names = {}, .host = "fd00::7"}), 6);
}

TEST(Ports, ConfiguredGidIndexIsUsedOrReportedMissing) {
  const Port port = roce("mlx5_0");
  EXPECT_EQ(chosen_gid(port, {.device_names = {}, .gid_index = 0, .host = ""}), 0);
  const RailPolicy none{.device_names = {}, .gid_index = 9, .host = ""};
  EXPECT_TRUE(says(why_unusable(port, none), "no GID with index 9: correct rdma_gid_index"));
}

TEST(Ports, InfiniBandTakesThePortsOwnGid) {
  Port port = roce("mlx5_0");
  port.ethernet = false;
  port.gids = {{gid("fe80::2"), 0, false, ""}, {gid("fe80::3"), 1, false, ""}};
  EXPECT_EQ(chosen_gid(port), 0);
}

TEST(Ports, SlowerAndInactivePortsAreLeftOut) {
  Port down = roce("mlx5_2");
  down.active = false;
  Port bare = roce("mlx5_3");
  bare.gids.resize(1);
  const std::vector<Port> ports{roce("mlx5_0"), roce("mlx5_1", "10.0.0.2", 25), down, bare,
                                roce("mlx5_4", "10.0.0.3")};
  EXPECT_EQ(names(choose_rails(ports, {})), (Names{"mlx5_0:1", "mlx5_4:1"}));
}

TEST(Ports, PortsNearThePoolGoFirst) {
  std::vector<Port> ports{roce("mlx5_0"), roce("mlx5_1"), roce("mlx5_2"), roce("mlx5_3")};
  for (size_t i = 0; i < 4; ++i) ports[i].numa_node = i < 2 ? 0 : 1;
  RailPolicy policy;
  policy.numa_node = 1;
  EXPECT_EQ(names(choose_rails(ports, policy)),
            (Names{"mlx5_2:1", "mlx5_3:1", "mlx5_0:1", "mlx5_1:1"}));
  policy.numa_node = -1;
  EXPECT_EQ(names(choose_rails(ports, policy)).front(), "mlx5_0:1");
}

TEST(Ports, NamedPortsAreTakenInOrderInAnyState) {
  std::vector<Port> ports{roce("mlx5_0"), roce("mlx5_0"), roce("mlx5_1", "10.0.0.2", 25)};
  ports[1].number = 2;
  ports[1].active = false;
  ports[1].gids.clear();
  RailPolicy policy;
  policy.device_names = {"mlx5_1", "mlx5_0:2", "mlx5_0"};
  EXPECT_EQ(names(choose_rails(ports, policy)), (Names{"mlx5_1:1", "mlx5_0:2", "mlx5_0:1"}));
}

TEST(Ports, UnknownPortIsReportedWithTheExistingOnes) {
  RailPolicy policy;
  policy.device_names = {"mlx5_0", "mlx5_9"};
  const std::string said = why_refused({roce("mlx5_0"), roce("mlx5_1")}, policy);
  EXPECT_TRUE(says(said, "no RDMA port mlx5_9")) << said;
  EXPECT_TRUE(says(said, "there are: mlx5_0:1, mlx5_1:1")) << said;
}

TEST(Ports, UnusablePortIsReportedWithReasonAndRemedy) {
  EXPECT_EQ(why_refused({}), "this machine has no RDMA device");
  EXPECT_EQ(why_unusable(roce("mlx5_0"), {}), "");
  Port down = roce("mlx5_0");
  down.active = false;
  EXPECT_TRUE(says(why_unusable(down, {}), "it is not active: check cable"));
  Port bare = roce("mlx5_1");
  bare.gids.clear();
  EXPECT_TRUE(
      says(why_unusable(bare, {}), "no RoCE v2 GID: give its network interface an address"));
}

TEST(Ports, WithoutUsablePortEachReportsItsReason) {
  Port down = roce("mlx5_0");
  down.active = false;
  Port bare = roce("mlx5_1");
  bare.gids.clear();
  const std::string said = why_refused({down, bare});
  EXPECT_TRUE(says(said, "no RDMA port can be used: mlx5_0:1: it is not active")) << said;
  EXPECT_TRUE(says(said, "; mlx5_1:1: it has no RoCE v2 GID")) << said;
}

TEST(Ports, GidIsPrintedAsItsAddress) {
  EXPECT_EQ(text_of(gid("10.1.2.3")), "10.1.2.3");
  EXPECT_EQ(text_of(gid("fe80::a")), "fe80::a");
}

}  // namespace
}  // namespace peercached::rdma
