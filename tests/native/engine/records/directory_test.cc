// This node as an owner: the changes that it takes from holders, and its answers to lookups.

#include "engine/records/directory.h"

#include <gtest/gtest.h>

#include <array>

namespace peercached {
namespace {

constexpr uint64_t kOwnView = 3;
constexpr Incarnation kHolder = 'b';
constexpr Digest kPage{5, 6}, kOurs{7, 8};  // ours: always in our pool

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() : holder_(nodes_.add("b", kHolder)) {
    directory_.set_own_records([this](std::span<const Digest> digests) {
      std::vector<RecordRow> rows;
      for (const Digest& digest : digests) {
        if (digest == kOurs) rows.emplace_back(row_of(9)).digest = kOurs;
      }
      if (own_after_ == 0) rows.push_back(row_of(9));
      if (own_after_ >= 0) --own_after_;
      return rows;
    });
  }

  static RecordRow row_of(uint64_t generation, uint8_t flags = kRecordResident) {
    RecordRow row{.digest = kPage, .offset = 4096, .generation = generation, .length = 100};
    row.flags = flags;
    row.holder = kSelfHolder;
    return row;
  }
  static FeedPart part_of(uint64_t from, std::span<const RecordRow> rows) {
    return {.rows = rows, .from = from, .to = from + rows.size()};
  }
  // All records of the holder, up to position 7, and a lease.
  void follow(uint64_t lease_view = kOwnView) {
    RecordTable& records = directory_.records();
    records.ask(holder_, Clock::now());
    ASSERT_EQ(records.take(holder_, {.from = 7, .to = 7, .anew = true}), RecordTable::Taken::ok);
    records.ask(holder_, Clock::now());
    ASSERT_EQ(records.take(holder_, {.from = 7, .to = 7, .lease_view = lease_view}),
              RecordTable::Taken::ok);
  }
  // This node owns the digest if it is the first of two.
  void set_ring(HolderIndex first, HolderIndex second) {
    directory_.set_ring(std::make_shared<const Ring>(std::vector<uint64_t>{1ull << 62, 1ull << 63},
                                                     std::vector{first, second}, 1, kOwnView));
  }
  Located look(uint64_t view_number = kOwnView) {
    Located located;
    directory_.lookup({&kPage, 1}, view_number, located);
    return located;
  }
  bool knows_it() { return !look().rows.empty(); }

  OperationCounters counters_;
  NodeTable nodes_{"a", 'a'};
  Running running_;
  Directory directory_{1000, {}, nodes_, running_, counters_};
  HolderIndex holder_;
  int own_after_ = -1;  // so many looks come before our pool has the page; -1: it never has it
};

TEST_F(DirectoryTest, PushedChangesAreNamedAndWithdrawn) {
  const RecordRow came = row_of(1), gone = row_of(2, kRecordWithdraw);
  EXPECT_EQ(directory_.take(kHolder, part_of(7, {&came, 1})), 0u) << "we do not follow it yet";
  follow();
  EXPECT_EQ(directory_.take(kHolder, part_of(7, {&came, 1})), 8u);
  EXPECT_TRUE(knows_it());
  EXPECT_EQ(directory_.take(kHolder, part_of(8, {&gone, 1})), 9u);
  EXPECT_EQ(directory_.take(kHolder, part_of(7, {&came, 1})), 9u) << "it came late";
  EXPECT_FALSE(knows_it());
  EXPECT_EQ(directory_.take('c', part_of(9, {&came, 1})), 0u) << "a stranger";
  nodes_.drop(holder_);
  EXPECT_EQ(directory_.take(kHolder, part_of(9, {&came, 1})), 0u);
  EXPECT_FALSE(knows_it());
}

TEST_F(DirectoryTest, AnswersNameTheHolderOnlyWhileItIsInTheView) {
  follow();
  const RecordRow came = row_of(1);
  ASSERT_EQ(directory_.take(kHolder, part_of(7, {&came, 1})), 8u);
  EXPECT_EQ(look().holders, std::vector{kHolder});
  nodes_.drop(holder_);
  EXPECT_FALSE(knows_it());
}

TEST_F(DirectoryTest, AnswersAreFinalInTheViewOfAllLeases) {
  set_ring(kSelfHolder, holder_);
  EXPECT_FALSE(look().final) << "the other member may have the page";
  follow(kOwnView - 1);
  EXPECT_FALSE(look().final) << "it may have given it to the owners of its view";
  follow();
  EXPECT_TRUE(look().final);
  EXPECT_FALSE(look(kOwnView - 1).final) << "the reader may know members that have left";
  EXPECT_FALSE(look(kOwnView + 1).final);
  set_ring(holder_, kSelfHolder);
  EXPECT_FALSE(look().final) << "somebody else owns the digest";
  set_ring(kSelfHolder, holder_);
  EXPECT_TRUE(look().final);
  directory_.records().is_lost(holder_);
  EXPECT_FALSE(look().final);
}

TEST_F(DirectoryTest, OurOwnPageIsNamedEvenIfItComesMeanwhile) {
  own_after_ = 0;
  EXPECT_EQ(look().holders, std::vector<Incarnation>{'a'});
  EXPECT_FALSE(knows_it());
  own_after_ = 1;
  EXPECT_EQ(look().holders, std::vector<Incarnation>{'a'}) << "it has moved here during the lookup";
  own_after_ = 1;
  Located beside;
  directory_.lookup(std::array{kOurs, kPage}, kOwnView, beside);
  EXPECT_EQ(beside.rows.size(), 2u) << "and so it has beside a page that was here before";
}

TEST_F(DirectoryTest, ARingTellsWhetherWeAreAloneAndRemembersTheOneBefore) {
  EXPECT_TRUE(directory_.alone());
  set_ring(kSelfHolder, holder_);
  EXPECT_FALSE(directory_.alone());
  const auto before = directory_.ring();
  EXPECT_EQ(directory_.former_ring(), nullptr);
  set_ring(kSelfHolder, kSelfHolder);
  EXPECT_TRUE(directory_.alone());
  EXPECT_TRUE(look(0).final) << "nobody else can have the page";
  EXPECT_EQ(directory_.former_ring(), before);
}

}  // namespace
}  // namespace peercached
