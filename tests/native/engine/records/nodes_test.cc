#include "engine/records/nodes.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

TEST(NodeTable, IndexOfANodeThatHasLeftIsReused) {
  NodeTable nodes("self", 1);
  const HolderIndex a = nodes.add("a", 7);
  nodes.set_suspect(a, true);
  nodes.set_slow(a, TimePoint::max());
  EXPECT_EQ(a, nodes.add("a", 7));
  EXPECT_NE(a, nodes.add("a", 8)) << "another incarnation is another node";
  nodes.drop(a);
  EXPECT_FALSE(nodes.live(a));
  EXPECT_EQ(nodes.find(std::vector<Incarnation>{7, 8}), (std::vector<HolderIndex>{kNoHolder, 2}));
  EXPECT_EQ(a, nodes.add("c", 1));
  EXPECT_TRUE(nodes.usable(a));
  EXPECT_FALSE(nodes.slow(a, Clock::now()));
}

TEST(NodeTable, OnlyConnectedNodesThatAreNotSuspectAreRead) {
  NodeTable nodes("self", 1);
  const HolderIndex a = nodes.add("a", 7);
  EXPECT_FALSE(nodes.readable(a));
  nodes.set_connected(a, true);
  EXPECT_TRUE(nodes.readable(a));
  nodes.set_suspect(a, true);
  EXPECT_FALSE(nodes.readable(a));
  EXPECT_FALSE(nodes.usable(a));
  nodes.set_suspect(a, false);
  EXPECT_TRUE(nodes.readable(a));
}

TEST(NodeTable, TellsWhenANodeCanBeReadAgain) {
  NodeTable nodes("self", 1);
  int told = 0;
  nodes.tell_of_readable([&] { ++told; });
  const HolderIndex a = nodes.add("a", 7);
  nodes.set_suspect(a, true);
  nodes.set_connected(a, true);
  EXPECT_EQ(told, 0) << "it is suspect";
  nodes.set_suspect(a, false);
  EXPECT_EQ(told, 1);
  nodes.set_suspect(a, false);
  nodes.set_connected(a, true);
  EXPECT_EQ(told, 1) << "it was readable before";
}

}  // namespace
}  // namespace peercached
