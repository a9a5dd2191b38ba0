#include "directory/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

namespace peercached {
namespace {

struct Table {
  std::vector<uint64_t> positions;
  std::vector<HolderIndex> nodes;
};

Table random_table(unsigned node_count, unsigned vnodes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<uint64_t, HolderIndex>> points;
  for (unsigned node = 0; node < node_count; ++node)
    for (unsigned v = 0; v < vnodes; ++v)
      points.emplace_back(random(), static_cast<HolderIndex>(node * 3));
  std::sort(points.begin(), points.end());
  Table table;
  for (auto [position, node] : points) {
    table.positions.push_back(position);
    table.nodes.push_back(node);
  }
  return table;
}

Ring ring_of(const Table& table, unsigned replicas) {
  return Ring(table.positions, table.nodes, replicas);
}

// The ring's definition, implemented literally.
std::vector<HolderIndex> naive_owners(const Table& table, uint64_t place, unsigned replicas) {
  std::vector<HolderIndex> owners;
  const size_t count = table.positions.size();
  size_t first = 0;
  while (first < count && table.positions[first] < place) ++first;
  for (size_t i = 0; i < count && owners.size() < replicas; ++i) {
    const HolderIndex node = table.nodes[(first + i) % count];
    if (std::find(owners.begin(), owners.end(), node) == owners.end()) owners.push_back(node);
  }
  return owners;
}

std::vector<HolderIndex> owners_of(const Ring& ring, uint64_t place) {
  HolderIndex out[kOwnersMax];
  const unsigned count = ring.owners({0x1234, place}, out);
  return {out, out + count};
}

TEST(Ring, OwnersAreTheFirstDistinctNodesClockwise) {
  std::mt19937_64 random(1);
  for (unsigned node_count : {1u, 2u, 3u, 7u, 40u}) {
    for (unsigned replicas : {1u, 2u, 3u, 8u}) {
      const Table table = random_table(node_count, 20, node_count);
      const Ring ring = ring_of(table, replicas);
      std::vector<uint64_t> places{0, 1, UINT64_MAX, UINT64_MAX - 1};
      for (uint64_t position : table.positions)
        places.insert(places.end(), {position - 1, position, position + 1});
      for (int i = 0; i < 500; ++i) places.push_back(random());
      for (uint64_t place : places) {
        const auto expected = naive_owners(table, place, replicas);
        ASSERT_EQ(owners_of(ring, place), expected) << place << " of " << node_count;
        for (unsigned node = 0; node < node_count; ++node) {
          const auto index = static_cast<HolderIndex>(node * 3);
          ASSERT_EQ(ring.owned_by({0, place}, index),
                    std::find(expected.begin(), expected.end(), index) != expected.end());
        }
      }
    }
  }
}

TEST(Ring, ASmallViewHasFewerOwnersThanReplicas) {
  const Ring ring = ring_of(random_table(2, 160, 1), 5);
  EXPECT_EQ(owners_of(ring, 77).size(), 2u);
}

TEST(Ring, AnEmptyRingOwnsNothing) {
  const Ring ring({}, {}, 2);
  EXPECT_TRUE(owners_of(ring, 5).empty());
  EXPECT_FALSE(ring.owned_by({0, 5}, 0));
  EXPECT_TRUE(ring.shares().empty());
  const Digest digest;
}

TEST(Ring, PositionsThatCoincideKeepTheirOrder) {
  const Ring ring({10, 10, 10, 20}, {4, 2, 9, 2}, 3);
  EXPECT_EQ(owners_of(ring, 10), (std::vector<HolderIndex>{4, 2, 9}));
  EXPECT_EQ(owners_of(ring, 11), (std::vector<HolderIndex>{2, 4, 9}));
  EXPECT_EQ(owners_of(ring, 21), (std::vector<HolderIndex>{4, 2, 9}));
}

TEST(Ring, WrongTablesAreRefused) {
  EXPECT_THROW(Ring({2, 1}, {0, 1}, 1), std::invalid_argument);
  EXPECT_THROW(Ring({1, 2}, {0}, 1), std::invalid_argument);
  EXPECT_THROW(Ring({1}, {0}, 0), std::invalid_argument);
  EXPECT_THROW(Ring({1}, {0}, kOwnersMax + 1), std::invalid_argument);
}

TEST(Ring, SharesAddUpAndAreNearEven) {
  const auto shares = ring_of(random_table(50, 160, 3), 2).shares();
  ASSERT_EQ(shares.size(), 50u);
  double sum = 0;
  for (auto [node, share] : shares) {
    EXPECT_GT(share, 0.5 / 50) << node;
    EXPECT_LT(share, 1.6 / 50) << node;
    sum += share;
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
}

TEST(Ring, SharesMatchOwnedBy) {
  const Ring ring = ring_of(random_table(7, 40, 5), 3);
  double sum = 0;
  for (auto [node, share] : ring.shares(3)) {
    unsigned owned = 0;
    std::mt19937_64 random(6);
    constexpr unsigned kDigests = 20'000;
    for (unsigned i = 0; i < kDigests; ++i) owned += ring.owned_by({random(), random()}, node);
    EXPECT_NEAR(share, static_cast<double>(owned) / kDigests, 0.02) << node;
    sum += share;
  }
  EXPECT_NEAR(sum, 3.0, 1e-9);
  EXPECT_EQ(ring.shares(8), ring.shares(3)) << "no more than there are";
}

TEST(Ring, ASinglePositionHasTheWholeCircle) {
  const auto shares = Ring({7}, {3}, 1).shares();
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0], (std::pair<HolderIndex, double>{3, 1.0}));
}

}  // namespace
}  // namespace peercached
