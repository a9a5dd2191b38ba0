// This node as an owner: the records that it takes from peers, and its answers to their lookups.

#include "engine/directory.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

constexpr uint64_t kOwnView = 3;
constexpr Incarnation kHolder = 'b';

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() : holder_(nodes_.add("b", kHolder, [](HolderIndex) { return true; }).first) {
    directory_.add_holder(holder_);
  }

  static std::vector<RecordRow> rows_of(uint64_t generation) {
    RecordRow row{.digest = {5, 6}, .offset = 4096, .generation = generation, .length = 100};
    row.flags = kRecordResident;
    return {row};
  }
  Located look() {
    const Digest digest{5, 6};
    Located located;
    directory_.lookup({&digest, 1}, kOwnView, located);
    return located;
  }
  bool knows_it() { return !look().rows.empty(); }

  OperationCounters counters_;
  NodeTable nodes_{"a", 'a'};
  Directory directory_{1000, {}, nodes_, counters_};
  HolderIndex holder_;
};

TEST_F(DirectoryTest, AFrameThatComesLateIsNotTaken) {
  EXPECT_TRUE(directory_.store(kHolder, 1, rows_of(1)));
  EXPECT_TRUE(knows_it());
  auto withdrawal = rows_of(2);
  withdrawal[0].flags = kRecordWithdraw;
  directory_.raise_fence(holder_, 2);
  directory_.shard().apply(holder_, withdrawal);
  EXPECT_FALSE(directory_.store(kHolder, 1, rows_of(1)));
  EXPECT_FALSE(knows_it());
  directory_.raise_fence(holder_, 1);
  EXPECT_FALSE(directory_.store(kHolder, 1, rows_of(1))) << "it never falls";
  EXPECT_TRUE(directory_.store(kHolder, 2, rows_of(3)));
}

TEST_F(DirectoryTest, RecordsOfStrangersAndInvalidRecordsAreRefused) {
  EXPECT_FALSE(directory_.store('c', 1, rows_of(1)));
  auto odd = rows_of(1);
  odd[0].offset = 1;
  EXPECT_FALSE(directory_.store(kHolder, 1, odd));
  EXPECT_FALSE(knows_it());
  directory_.drop_holder(holder_);
  EXPECT_FALSE(directory_.store(kHolder, 1, rows_of(1)));
}

TEST_F(DirectoryTest, AnswersNameTheHolderOnlyWhileItIsInTheView) {
  ASSERT_TRUE(directory_.store(kHolder, 1, rows_of(1)));
  EXPECT_EQ(look().holders, std::vector{kHolder});
  nodes_.drop(holder_);
  EXPECT_FALSE(knows_it());
}

TEST_F(DirectoryTest, AnswersAreFinalOnlyForTheViewInSync) {
  EXPECT_FALSE(look().final);
  directory_.finality().keep(Clock::now() + std::chrono::hours(1));
  directory_.finality().set(true, kOwnView + 1);
  EXPECT_FALSE(look().final);
  directory_.finality().set(true, kOwnView);
  EXPECT_TRUE(look().final);
}

TEST_F(DirectoryTest, ARingClosesOwnersAndTellsWhetherWeAreAlone) {
  nodes_.open_owner(holder_, true);
  const std::vector<uint64_t> positions{1ull << 62, 1ull << 63};
  const auto ring_of = [&](HolderIndex first, HolderIndex second) {
    return std::make_shared<const Ring>(positions, std::vector{first, second}, 1, kOwnView);
  };
  directory_.set_ring(ring_of(kSelfHolder, holder_));
  EXPECT_FALSE(directory_.alone());
  EXPECT_FALSE(nodes_.open_owner(holder_));
  directory_.set_ring(ring_of(kSelfHolder, kSelfHolder));
  EXPECT_TRUE(directory_.alone());
}

}  // namespace
}  // namespace peercached
