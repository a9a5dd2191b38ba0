#include "engine/nodes.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

TEST(NodeTable, IndexIsReusedOnlyAfterItsSweep) {
  NodeTable nodes("self", 1);
  bool swept = false;
  auto reusable = [&](HolderIndex) { return swept; };
  const HolderIndex a = nodes.add("a", 7, reusable).first;
  EXPECT_FALSE(nodes.add("a", 7, reusable).second);
  EXPECT_NE(a, nodes.add("a", 8, reusable).first);  // another incarnation is another node
  nodes.drop(a);
  EXPECT_FALSE(nodes.usable(a));
  EXPECT_NE(a, nodes.add("b", 1, reusable).first);
  swept = true;
  EXPECT_EQ(a, nodes.add("c", 1, reusable).first);
}

TEST(NodeTable, OnlyConnectedNodesThatAreNotSuspectAreRead) {
  NodeTable nodes("self", 1);
  const HolderIndex a = nodes.add("a", 7, [](HolderIndex) { return true; }).first;
  EXPECT_FALSE(nodes.readable(a));
  nodes.set_connected(a, true);
  EXPECT_TRUE(nodes.readable(a));
  nodes.set_suspect(a, true);
  EXPECT_FALSE(nodes.readable(a));
  EXPECT_FALSE(nodes.usable(a));
  nodes.set_suspect(a, false);
  EXPECT_TRUE(nodes.readable(a));
}

}  // namespace
}  // namespace peercached
