#include "engine/storage/namespaces.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace peercached {
namespace {

TEST(Namespaces, NeverShareADigest) {
  NamespaceTable table(Key128{});
  const Digest a = digest_of(table.open("a", 0)->current().key, "key");
  const Digest b = digest_of(table.open("b", 0)->current().key, "key");
  EXPECT_NE(a, b);
  EXPECT_EQ(a, digest_of(table.open("a", 0)->current().key, "key"));
  NamespaceTable other_cluster(Key128{1});
  EXPECT_NE(a, digest_of(other_cluster.open("a", 0)->current().key, "key"));
}

TEST(Namespaces, RaisedEpochMovesEveryKeyAndNamesTheStaleSlot) {
  NamespaceTable table(Key128{});
  const auto ns = table.open("a", 0);
  const NamespaceEpoch before = ns->current();
  uint32_t stale = 0;
  EXPECT_TRUE(table.raise(ns->id(), 1, stale));
  EXPECT_EQ(stale, before.pool_slot);
  EXPECT_NE(digest_of(before.key, "key"), digest_of(ns->current().key, "key"));
  EXPECT_FALSE(table.raise(ns->id(), 1, stale));  // epochs never go back
}

TEST(Namespaces, AnEpochLearntBeforeTheFirstUseCounts) {
  NamespaceTable table(Key128{});
  uint32_t stale = 0;
  EXPECT_TRUE(table.raise(table.id_of("later"), 5, stale));
  EXPECT_EQ(stale, 0u);
  EXPECT_EQ(table.open("later", 0)->current().epoch, 5u);
}

TEST(Namespaces, EpochsMarkDependsOnlyOnTheEpochs) {
  NamespaceTable one(Key128{}), other(Key128{});
  uint32_t stale = 0;
  EXPECT_EQ(one.epochs_mark(), other.epochs_mark());
  one.raise({0, 1}, 5, stale);
  one.raise({0, 2}, 7, stale);
  EXPECT_NE(one.epochs_mark(), other.epochs_mark());
  other.raise({0, 2}, 7, stale);
  other.raise({0, 1}, 4, stale);
  EXPECT_NE(one.epochs_mark(), other.epochs_mark());
  other.raise({0, 1}, 5, stale);
  EXPECT_EQ(one.epochs_mark(), other.epochs_mark());
}

TEST(Namespaces, NamesBeyondTheLimitAreRefused) {
  NamespaceTable table(Key128{});
  EXPECT_EQ(table.open(std::string(kNamespaceBytesMax + 1, 'x'), 0), nullptr);
}

TEST(Namespaces, UnusedNamespacesWithoutPagesMakeRoom) {
  NamespaceTable table(Key128{});
  std::set<uint32_t> with_pages;
  std::vector<uint32_t> forgotten;
  table.forget_unused([&](uint32_t slot) { return with_pages.contains(slot); },
                      [&](uint32_t slot) { forgotten.push_back(slot); });
  const auto held = table.open("held", 1);
  const Digest page = digest_of(table.open("with pages", 1)->current().key, "key");
  with_pages.insert(table.open("with pages", 1)->current().pool_slot);
  for (size_t i = 2; i < kNamespacesPerUserMax; ++i) {
    ASSERT_NE(table.open(std::to_string(i), 1), nullptr) << i;
  }
  EXPECT_TRUE(forgotten.empty());
  EXPECT_NE(table.open("one more", 1), nullptr);
  EXPECT_EQ(forgotten.size(), kNamespacesPerUserMax - 2);
  EXPECT_EQ(table.open("held", 1), held);
  EXPECT_EQ(digest_of(table.open("with pages", 1)->current().key, "key"), page);
}

TEST(Namespaces, UserAtItsLimitLeavesRoomForOthers) {
  NamespaceTable table(Key128{});
  table.forget_unused([](uint32_t) { return true; }, [](uint32_t) {});
  for (size_t i = 0; i < kNamespacesPerUserMax; ++i) {
    ASSERT_NE(table.open(std::to_string(i), 1), nullptr) << i;
  }
  EXPECT_EQ(table.open("one more", 1), nullptr);
  EXPECT_NE(table.open("0", 1), nullptr);
  EXPECT_NE(table.open("one more", 2), nullptr);
}

}  // namespace
}  // namespace peercached
