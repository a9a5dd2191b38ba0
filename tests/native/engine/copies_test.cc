// Lookups in copies of other nodes' records. Some copies must not answer.
#include "engine/copies.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

constexpr HolderIndex kA = 3, kB = 700;

struct TheseCopies : ::testing::Test {
  Copies copies{2000, [] {}};

  static Digest digest_of(uint64_t page) { return {page * 0x9e3779b97f4a7c15, page}; }
  static RecordRow row_of(uint64_t page, uint64_t generation = 1) {
    RecordRow row{.digest = digest_of(page), .offset = 64, .generation = generation, .length = 9};
    row.flags = kRecordResident;
    return row;
  }
  // A complete answer from a holder without a copy here.
  void tell(HolderIndex holder, std::vector<RecordRow> rows) {
    const uint64_t asked = copies.asks();
    EXPECT_TRUE(copies.begins(holder));
    EXPECT_TRUE(copies.changes(holder, rows));
    copies.is_up_to_date(holder, asked, Clock::now());
  }
  // An answer from a holder that has no news.
  void ask(HolderIndex holder) { copies.is_up_to_date(holder, copies.asks(), Clock::now()); }
  void removed(uint64_t page) {
    const Digest digest = digest_of(page);
    copies.removed({&digest, 1});
  }
  std::vector<HolderIndex> holders_of(uint64_t page) {
    const Digest digest = digest_of(page);
    std::vector<RecordRow> found;
    copies.find({&digest, 1}, found);
    std::vector<HolderIndex> holders;
    for (const RecordRow& row : found) holders.push_back(row.holder);
    std::sort(holders.begin(), holders.end());
    return holders;
  }
  using Holders = std::vector<HolderIndex>;
};

TEST_F(TheseCopies, ReportedRecordsAreFoundWithTheirHolders) {
  tell(kA, {row_of(1), row_of(2)});
  tell(kB, {row_of(2)});
  EXPECT_EQ(holders_of(1), Holders{kA});
  EXPECT_EQ(holders_of(2), (Holders{kA, kB}));
  EXPECT_EQ(holders_of(3), Holders{});
}

TEST_F(TheseCopies, FindAllNamesAllHoldersOfAPage) {
  for (HolderIndex holder = 1; holder <= 6; ++holder) tell(holder, {row_of(1)});
  EXPECT_EQ(holders_of(1).size(), 3u);
  copies.is_lost(4);
  const Digest digest = digest_of(1);
  std::vector<RecordRow> found;
  copies.find_all({&digest, 1}, found);
  Holders holders;
  for (const RecordRow& row : found) holders.push_back(row.holder);
  std::sort(holders.begin(), holders.end());
  EXPECT_EQ(holders, (Holders{1, 2, 3, 5, 6}));
  Holders answering = copies.holders();
  std::sort(answering.begin(), answering.end());
  EXPECT_EQ(answering, holders);
  copies.forget(5);
  found.clear();
  copies.find_all({&digest, 1}, found);
  EXPECT_EQ(found.size(), 4u);
}

TEST_F(TheseCopies, WithdrawnRecordIsGone) {
  tell(kA, {row_of(1)});
  RecordRow gone = row_of(1, 2);
  gone.flags = kRecordWithdraw;
  EXPECT_TRUE(copies.changes(kA, {&gone, 1}));
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheseCopies, CopyIsUsedOnlyOnceItsAnswerIsComplete) {
  EXPECT_TRUE(copies.begins(kA));
  const RecordRow row = row_of(1);
  EXPECT_TRUE(copies.changes(kA, {&row, 1}));
  EXPECT_EQ(holders_of(1), Holders{});
  ask(kA);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

TEST_F(TheseCopies, LostHolderIsNotNamedUntilItAnswers) {
  tell(kA, {row_of(1)});
  copies.is_lost(kA);
  EXPECT_EQ(holders_of(1), Holders{});
  ask(kA);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

TEST_F(TheseCopies, HolderAskedTooLongAgoIsNotNamed) {
  tell(kA, {row_of(1)});
  copies.is_up_to_date(kA, copies.asks(), Clock::now() - std::chrono::seconds(5));
  EXPECT_EQ(holders_of(1), Holders{}) << "the question was sent before this process stood still";
}

TEST_F(TheseCopies, RestartedCopyHasOnlyItsNewRecords) {
  for (uint64_t round = 100; round > 0; --round) {
    tell(kA, {row_of(round)});
    EXPECT_EQ(holders_of(round), Holders{kA});
    EXPECT_EQ(holders_of(round + 1), Holders{}) << "of the round before";
    while (round % 2 == 0 && copies.sweep(1000) > 0) {
    }
  }
  copies.forget(kA);
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheseCopies, HolderTooLargeToFitHasNoCopy) {
  tell(kA, {row_of(1)});
  std::vector<RecordRow> many;
  for (uint64_t page = 2; page < 100'000; ++page) many.push_back(row_of(page));
  EXPECT_TRUE(copies.begins(kB));
  EXPECT_FALSE(copies.changes(kB, many));
  ask(kB);
  EXPECT_EQ(holders_of(50), Holders{});
  EXPECT_EQ(copies.stats().no_room, 1u);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

// The rest: a removal has ended, but a copy may be older than the removal.

TEST_F(TheseCopies, RemovedPageIsNotNamedUntilItsHolderIsAskedAgain) {
  tell(kA, {row_of(1), row_of(2)});
  removed(1);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(holders_of(2), Holders{kA});
  ask(kA);
  EXPECT_EQ(holders_of(1), Holders{kA}) << "it was set again";
}

TEST_F(TheseCopies, AnAnswerToAnEarlierQuestionDoesNotCount) {
  tell(kA, {row_of(1)});
  const uint64_t asked = copies.asks();
  removed(1);
  copies.is_up_to_date(kA, asked, Clock::now());
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheseCopies, EarlierAnswerOfAHolderWithoutCopyDoesNotCount) {
  for (const bool beside_another : {false, true}) {
    const uint64_t asked = copies.asks();
    removed(1);
    if (beside_another) ask(kA);
    EXPECT_TRUE(copies.begins(kB));
    const RecordRow row = row_of(1);
    EXPECT_TRUE(copies.changes(kB, {&row, 1}));
    copies.is_up_to_date(kB, asked, Clock::now());
    EXPECT_EQ(holders_of(1), Holders{}) << beside_another;
    ask(kB);
    EXPECT_EQ(holders_of(1), Holders{kB});
    copies.forget(kB);
    tell(kA, {});
  }
}

TEST_F(TheseCopies, EachHolderHasToBeAskedAgain) {
  tell(kA, {row_of(1)});
  tell(kB, {row_of(1)});
  removed(1);
  ask(kA);
  EXPECT_EQ(holders_of(1), Holders{kA});
  ask(kB);
  EXPECT_EQ(holders_of(1), (Holders{kA, kB}));
}

TEST_F(TheseCopies, TooManyRemovalsVoidTheWholeCopy) {
  tell(kA, {row_of(1), row_of(2)});
  for (uint64_t page = 1000; page < 1000 + (1 << 16); ++page) removed(page);
  EXPECT_EQ(holders_of(1), Holders{kA});
  removed(1);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(holders_of(2), Holders{}) << "which one it was is forgotten";
  ask(kA);
  EXPECT_EQ(holders_of(2), Holders{kA});
}

}  // namespace
}  // namespace peercached
