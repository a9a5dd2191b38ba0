// Lookups in other nodes' records. Without a lease, records must not answer.
#include "directory/record_table.h"

#include <gtest/gtest.h>

#include "shard/records.h"

namespace peercached {
namespace {

constexpr HolderIndex kA = 3, kB = 700;

struct TheRecords : ::testing::Test {
  using Taken = RecordTable::Taken;
  RecordTable table{2000, [] {}};

  static Digest digest_of(uint64_t page) { return {page * 0x9e3779b97f4a7c15, page}; }
  static RecordRow row_of(uint64_t page, uint64_t generation = 1) {
    RecordRow row{.digest = digest_of(page), .offset = 64, .generation = generation, .length = 9};
    row.flags = kRecordResident;
    return row;
  }
  // The first part of a scan. A scan's records are used only once its last part has come.
  Taken scan(HolderIndex holder, std::vector<RecordRow> rows, TimePoint at = Clock::now()) {
    table.ask(holder, at);
    return table.take(holder, {.rows = rows, .anew = true, .more = true});
  }
  // The rest of it, and the next answer with these changes and a lease.
  void end_scan(HolderIndex holder, std::vector<RecordRow> changes = {},
                TimePoint at = Clock::now()) {
    EXPECT_EQ(table.take(holder, {.from = 7, .to = 7}), Taken::ok);
    EXPECT_EQ(news(holder, 7, changes, 1, at), Taken::ok);
  }
  // An answer with these changes.
  Taken news(HolderIndex holder, uint64_t from, std::vector<RecordRow> changes = {},
             uint64_t lease_view = 1, TimePoint at = Clock::now()) {
    table.ask(holder, at);
    FeedPart part{.rows = changes, .from = from, .lease_view = lease_view};
    part.to = from + changes.size();
    return table.take(holder, part);
  }
  uint64_t push(HolderIndex holder, uint64_t from, std::vector<RecordRow> changes) {
    return table.push(holder, {.rows = changes, .from = from, .to = from + changes.size()});
  }
  // A missing record says that the page is nowhere in this view; 0: in none.
  uint64_t final_view() {
    const Digest digest = digest_of(1);
    std::vector<RecordRow> found;
    return table.find({&digest, 1}, found);
  }
  // All records of a holder.
  void tell(HolderIndex holder, std::vector<RecordRow> rows) {
    EXPECT_EQ(scan(holder, rows), Taken::ok);
    end_scan(holder);
  }
  std::vector<HolderIndex> holders_of(uint64_t page) {
    const Digest digest = digest_of(page);
    std::vector<RecordRow> found;
    table.find({&digest, 1}, found);
    std::vector<HolderIndex> holders;
    for (const RecordRow& row : found) holders.push_back(row.holder);
    std::sort(holders.begin(), holders.end());
    return holders;
  }
  using Holders = std::vector<HolderIndex>;
};

TEST_F(TheRecords, ReportedRecordsAreFoundWithTheirHolders) {
  tell(kA, {row_of(1), row_of(2)});
  tell(kB, {row_of(2)});
  EXPECT_EQ(holders_of(1), Holders{kA});
  EXPECT_EQ(holders_of(2), (Holders{kA, kB}));
  EXPECT_EQ(holders_of(3), Holders{});
}

TEST_F(TheRecords, FindAllNamesAllHoldersOfAPage) {
  for (HolderIndex holder = 1; holder <= 6; ++holder) tell(holder, {row_of(1)});
  EXPECT_EQ(holders_of(1).size(), 3u);
  table.is_lost(4);
  const Digest digest = digest_of(1);
  std::vector<RecordRow> found;
  table.find_all({&digest, 1}, found);
  Holders holders;
  for (const RecordRow& row : found) holders.push_back(row.holder);
  std::sort(holders.begin(), holders.end());
  EXPECT_EQ(holders, (Holders{1, 2, 3, 5, 6}));
  Holders answering = table.holders();
  std::sort(answering.begin(), answering.end());
  EXPECT_EQ(answering, holders);
  table.forget(5);
  found.clear();
  table.find_all({&digest, 1}, found);
  EXPECT_EQ(found.size(), 4u);
}

TEST_F(TheRecords, WithdrawnRecordIsGone) {
  tell(kA, {row_of(1)});
  RecordRow gone = row_of(1, 2);
  gone.flags = kRecordWithdraw;
  EXPECT_EQ(news(kA, 7, {gone}), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheRecords, AnswerOnlyOnceTheHolderHasGivenALease) {
  EXPECT_EQ(scan(kA, {row_of(1)}), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(table.take(kA, {.from = 7, .to = 7}), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{}) << "changes during the scan are not here yet";
  EXPECT_EQ(news(kA, 7, {}, 0), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(news(kA, 7), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

TEST_F(TheRecords, OfALostHolderAreNotNamedUntilItAnswers) {
  tell(kA, {row_of(1)});
  table.is_lost(kA);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(news(kA, 7), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

TEST_F(TheRecords, LeaseCountsFromItsQuestion) {
  tell(kA, {row_of(1)});
  EXPECT_EQ(news(kA, 7, {}, 1, Clock::now() - kLease), Taken::ok);
  EXPECT_EQ(holders_of(1), Holders{}) << "the question was sent before this process stood still";
}

TEST_F(TheRecords, ChangesThatDoNotFitThePositionAreNotTaken) {
  tell(kA, {});
  EXPECT_EQ(news(kA, 9, {row_of(1)}), Taken::does_not_fit) << "two changes are missing";
  EXPECT_EQ(news(kA, 7, {row_of(1), row_of(2)}), Taken::ok);
  RecordRow gone = row_of(1, 2);
  gone.flags = kRecordWithdraw;
  EXPECT_EQ(news(kA, 9, {gone}), Taken::ok);
  EXPECT_EQ(news(kA, 8, {row_of(2), gone, row_of(3)}), Taken::ok) << "two are known";
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(holders_of(3), Holders{kA});
  EXPECT_EQ(news(kA, 7, {row_of(1)}), Taken::ok) << "all are known";
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheRecords, PushIsTakenFromOurPositionOn) {
  EXPECT_EQ(push(kA, 7, {row_of(1)}), 0u) << "nothing is here to append it to";
  EXPECT_EQ(scan(kA, {}), Taken::ok);
  EXPECT_EQ(push(kA, 7, {row_of(1)}), 0u) << "a scan is under way";
  end_scan(kA);
  EXPECT_EQ(push(kA, 7, {row_of(1)}), 8u);
  EXPECT_EQ(holders_of(1), Holders{kA}) << "at once";
  EXPECT_EQ(push(kA, 9, {row_of(3)}), 8u) << "a change is missing";
  RecordRow gone = row_of(1, 2);
  gone.flags = kRecordWithdraw;
  EXPECT_EQ(push(kA, 7, {row_of(1), gone, row_of(2)}), 10u) << "one is known";
  EXPECT_EQ(push(kA, 7, {row_of(1, 3)}), 10u) << "late";
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(holders_of(2), Holders{kA});
  EXPECT_EQ(holders_of(3), Holders{});
}

TEST_F(TheRecords, AnswerThatAPushHasOvertakenGivesItsLease) {
  tell(kA, {});
  table.ask(kA, Clock::now());
  EXPECT_EQ(push(kA, 7, {row_of(1), row_of(2)}), 9u);
  table.is_lost(kA);
  const std::vector<RecordRow> known{row_of(1)};
  EXPECT_EQ(table.take(kA, {.rows = known, .from = 7, .to = 8, .lease_view = 1}), Taken::ok);
  EXPECT_EQ(holders_of(2), Holders{kA});
  EXPECT_EQ(push(kA, 9, {row_of(3)}), 10u) << "it stands where it stood";
}

TEST_F(TheRecords, PushGivesNoLease) {
  tell(kA, {});
  table.is_lost(kA);
  EXPECT_EQ(push(kA, 7, {row_of(1)}), 8u);
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheRecords, HolderWhosePushHasNoRoomIsDropped) {
  tell(kA, {row_of(1)});
  std::vector<RecordRow> many;
  for (uint64_t page = 2; page < 100'000; ++page) many.push_back(row_of(page));
  EXPECT_EQ(push(kA, 7, many), 0u);
  EXPECT_EQ(holders_of(1), Holders{}) << "a loss of records ends the lease";
  const FeedQuestion asks = table.ask(kA, Clock::now());
  EXPECT_EQ(std::pair(asks.position, asks.lease_view), std::pair(uint64_t{0}, uint64_t{0}));
}

TEST_F(TheRecords, AFollowerThatBeginsAnewHasNoLeaseUntilTheHolderGivesOne) {
  tell(kA, {row_of(1)});
  EXPECT_EQ(scan(kA, {row_of(2)}), Taken::ok);
  EXPECT_EQ(table.take(kA, {.from = 9, .to = 9}), Taken::ok);
  EXPECT_EQ(holders_of(2), Holders{}) << "changes during the scan are not here yet";
  EXPECT_EQ(table.ask(kA, Clock::now()).lease_view, 0u);
}

TEST_F(TheRecords, AreAllInAViewOfWhichEveryMemberHasGivenALease) {
  EXPECT_EQ(final_view(), 0u) << "no view yet";
  const Holders members{kA, kB};
  table.set_view(1, members);
  EXPECT_EQ(final_view(), 0u);
  tell(kA, {});
  EXPECT_EQ(final_view(), 0u) << "the other one may have the page";
  tell(kB, {});
  EXPECT_EQ(final_view(), 1u);
  table.is_lost(kB);
  EXPECT_EQ(final_view(), 0u);
  EXPECT_EQ(news(kB, 7), Taken::ok);
  EXPECT_EQ(final_view(), 1u);
  table.forget(kB);
  EXPECT_EQ(final_view(), 0u);
  table.set_view(2, {&kA, 1});
  EXPECT_EQ(final_view(), 0u) << "the lease is of the view before";
  EXPECT_EQ(news(kA, 7, {}, 2), Taken::ok);
  EXPECT_EQ(final_view(), 2u);
  table.set_view(3, {});
  EXPECT_EQ(final_view(), 3u) << "nobody else is there";
}

TEST_F(TheRecords, AreAllOnlyWhileTheLeasesLast) {
  TimePoint now = Clock::now();
  RecordTable timed(
      2000, [] {}, [&] { return now; });
  timed.set_view(1, {&kA, 1});
  timed.ask(kA, now);
  EXPECT_EQ(timed.take(kA, {.from = 7, .to = 7, .anew = true}), Taken::ok);
  timed.ask(kA, now);
  EXPECT_EQ(timed.take(kA, {.from = 7, .to = 7, .lease_view = 1}), Taken::ok);
  std::vector<RecordRow> found;
  EXPECT_EQ(timed.find({}, found), 1u);
  now += kLease - std::chrono::milliseconds(1);
  EXPECT_EQ(timed.find({}, found), 1u);
  now += std::chrono::milliseconds(1);
  EXPECT_EQ(timed.find({}, found), 0u);
  EXPECT_EQ(timed.ask(kA, now).lease_view, 0u) << "it does not claim the lease either";
}

TEST_F(TheRecords, AScanReplacesAllEarlierRecords) {
  for (uint64_t round = 100; round > 0; --round) {
    tell(kA, {row_of(round)});
    EXPECT_EQ(holders_of(round), Holders{kA});
    EXPECT_EQ(holders_of(round + 1), Holders{}) << "of the round before";
    while (round % 2 == 0 && table.sweep(1000) > 0) {
    }
  }
  table.forget(kA);
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheRecords, LostRecordIsChargedToItsOwnHolder) {
  RecordTable large(4'000'000, [] {});
  const CrowdedPiece crowded;
  const auto tell_all = [&](HolderIndex holder, std::span<const RecordRow> rows) {
    large.ask(holder, Clock::now());
    EXPECT_EQ(large.take(holder, {.rows = rows, .anew = true, .more = true}), Taken::ok);
    EXPECT_EQ(large.take(holder, {.from = 7, .to = 7, .lease_view = 1}), Taken::ok);
  };
  large.set_view(1, std::vector<HolderIndex>{kA, kB});
  tell_all(kA, crowded.others);
  tell_all(kB, crowded.colliding);
  ASSERT_EQ(large.final_view(), 1u);
  const auto changes = crowded.withdrawals();
  large.ask(kA, Clock::now());
  FeedPart part{.rows = changes, .from = 7, .to = 7 + changes.size(), .lease_view = 1};
  EXPECT_EQ(large.take(kA, part), Taken::ok) << "its own records are all here";
  EXPECT_EQ(large.final_view(), 0u) << "a missing record may be one of B's";
  EXPECT_EQ(large.holders(), Holders{kA});
  EXPECT_EQ(large.ask(kB, Clock::now()).position, 0u) << "B is asked for all its records";
  tell_all(kB, std::span(crowded.colliding).first(100));
  EXPECT_EQ(large.final_view(), 1u);
}

TEST_F(TheRecords, OfAHolderTooLargeToFitAreNotKept) {
  tell(kA, {row_of(1)});
  std::vector<RecordRow> many;
  for (uint64_t page = 2; page < 100'000; ++page) many.push_back(row_of(page));
  EXPECT_EQ(scan(kB, many), Taken::no_room);
  EXPECT_EQ(news(kB, 7), Taken::does_not_fit);
  EXPECT_EQ(holders_of(50), Holders{});
  EXPECT_EQ(table.stats().no_room, 1u);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

// Only records of odd pages, until another choice.
struct SomeRecords : TheRecords {
  SomeRecords() {
    table.set_view(1, {&kA, 1});
    choose(1, 7);
  }
  void choose(uint64_t rest, uint64_t ring) {
    table.store_only([rest](const Digest& digest) { return digest.hi % 2 == rest; }, ring);
  }
  // Rows of a scan beside the records, and its end.
  Taken beside(uint64_t position, std::vector<RecordRow> rows) {
    const Taken taken = table.take(kA, {.rows = rows, .more = true});
    return taken == Taken::ok ? table.take(kA, {.from = position, .to = position}) : taken;
  }
};

TEST_F(SomeRecords, AreStoredAndOthersAreNot) {
  tell(kA, {row_of(1), row_of(2)});
  EXPECT_EQ(push(kA, 7, {row_of(3), row_of(4)}), 9u);
  EXPECT_EQ(holders_of(1), Holders{kA});
  EXPECT_EQ(holders_of(2), Holders{});
  EXPECT_EQ(holders_of(3), Holders{kA});
  EXPECT_EQ(holders_of(4), Holders{});
  EXPECT_EQ(final_view(), 1u);
}

TEST_F(SomeRecords, PartWithoutSomeChangesDoesNotBringAWithdrawnRecordBack) {
  tell(kA, {});
  RecordRow gone = row_of(1, 2);
  gone.flags = kRecordWithdraw;
  EXPECT_EQ(push(kA, 7, {row_of(1), row_of(2), gone}), 10u);
  const std::vector<RecordRow> rows{row_of(1), gone, row_of(3)};
  EXPECT_EQ(table.push(kA, {.rows = rows, .from = 7, .to = 11}), 11u);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(holders_of(3), Holders{kA});

  RecordRow earlier = row_of(5, 4);
  earlier.flags = kRecordWithdraw;
  const std::vector<RecordRow> late{row_of(5, 9), earlier};
  EXPECT_EQ(table.push(kA, {.rows = late, .from = 11, .to = 14}), 14u);
  EXPECT_EQ(holders_of(5), Holders{kA}) << "the page was set again before that";
}

TEST_F(SomeRecords, AnotherChoiceIsFinalOnlyAfterAScanBesideThem) {
  tell(kA, {row_of(1)});
  EXPECT_EQ(final_view(), 1u);
  table.ask(kA, Clock::now());
  choose(0, 8);
  EXPECT_EQ(final_view(), 0u);
  EXPECT_EQ(holders_of(1), Holders{kA}) << "the records that are here answer meanwhile";
  EXPECT_EQ(table.take(kA, {.from = 7, .to = 7, .lease_view = 1}), Taken::ok);
  EXPECT_EQ(final_view(), 0u) << "the question was of the choice before";
  const FeedQuestion asks = table.ask(kA, Clock::now());
  EXPECT_EQ(std::pair(asks.ring, asks.scans), std::pair(uint64_t{8}, uint64_t{1}));
  EXPECT_EQ(beside(7, {row_of(2)}), Taken::ok);
  EXPECT_EQ(final_view(), 1u);
  EXPECT_EQ(holders_of(2), Holders{kA});
  EXPECT_EQ(table.ask(kA, Clock::now()).scans, 0u);
}

TEST_F(SomeRecords, ScanOfAnEarlierChoiceDoesNotCount) {
  tell(kA, {});
  choose(0, 8);
  table.ask(kA, Clock::now());
  choose(1, 9);
  EXPECT_EQ(beside(7, {row_of(2)}), Taken::ok);
  EXPECT_EQ(final_view(), 0u);
  table.ask(kA, Clock::now());
  EXPECT_EQ(beside(7, {row_of(1)}), Taken::ok);
  EXPECT_EQ(final_view(), 1u);
}

TEST_F(SomeRecords, FirstScanOfAnEarlierChoiceDoesNotCount) {
  table.ask(kA, Clock::now());
  choose(0, 8);
  EXPECT_EQ(table.take(kA, {.from = 7, .to = 7, .anew = true}), Taken::ok);
  EXPECT_EQ(table.ask(kA, Clock::now()).scans, 1u);
}

TEST_F(SomeRecords, PushDuringAScanBesideThemIsNotTaken) {
  tell(kA, {row_of(1)});
  choose(0, 8);
  choose(1, 9);
  table.ask(kA, Clock::now());
  RecordRow gone = row_of(1, 2);
  gone.flags = kRecordWithdraw;
  EXPECT_EQ(push(kA, 7, {gone}), 7u) << "the scan may have passed this page, and would undo it";
  EXPECT_EQ(beside(7, {row_of(1)}), Taken::ok);
  EXPECT_EQ(push(kA, 7, {gone}), 8u);
  EXPECT_EQ(holders_of(1), Holders{});
}

TEST_F(TheRecords, OnceThereIsNoRoomForAllOnlyOwnRecordsAreStored) {
  const auto is_odd = [](const Digest& digest) { return digest.hi % 2 == 1; };
  const Holders members{kA, kB};
  table.set_view(1, members);
  table.store_all_or(is_odd, 7, 2);
  tell(kA, {row_of(1), row_of(2)});
  EXPECT_EQ(holders_of(2), Holders{kA});
  std::vector<RecordRow> many;
  for (uint64_t page = 3; page < 100'000; ++page) many.push_back(row_of(page));
  EXPECT_EQ(scan(kB, many), Taken::no_room);
  EXPECT_EQ(holders_of(1), Holders{}) << "all begin anew";
  const FeedQuestion asks = table.ask(kA, Clock::now());
  EXPECT_EQ(std::pair(asks.position, asks.ring), std::pair(uint64_t{0}, uint64_t{7}));
  tell(kA, {row_of(1), row_of(2)});
  EXPECT_EQ(holders_of(1), Holders{kA});
  EXPECT_EQ(holders_of(2), Holders{});
  table.store_all_or(is_odd, 8, 2);
  table.set_view(2, members);
  EXPECT_EQ(table.ask(kA, Clock::now()).ring, 8u) << "so many would not fit again";
  table.store_all_or(is_odd, 9, 1);
  table.set_view(3, {&kA, 1});
  EXPECT_EQ(table.ask(kA, Clock::now()).ring, 0u) << "all of fewer members may";
}

TEST_F(TheRecords, TellWhenThoseOfAHolderBeginToAnswer) {
  int told = 0;
  table.tell_of_changes([](HolderIndex, std::span<const RecordRow>) {}, [](HolderIndex) {},
                        [&] { ++told; });
  EXPECT_EQ(scan(kA, {row_of(1)}), Taken::ok);
  EXPECT_EQ(told, 0) << "it has no lease yet";
  end_scan(kA);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(news(kA, 7, {row_of(2)}), Taken::ok);
  EXPECT_EQ(told, 1) << "they answered before";
  table.is_lost(kA);
  EXPECT_EQ(holders_of(1), Holders{});
  EXPECT_EQ(news(kA, 8), Taken::ok);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(holders_of(1), Holders{kA});
}

}  // namespace
}  // namespace peercached
