// A holder's changes reach its followers, and it waits for those of them that it has to.
#include "directory/feed.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

constexpr Incarnation kAlice = 1, kBob = 2, kCarol = 3;

struct OfAHolder : ::testing::Test {
  Feed feed{8};
  TimePoint now = Clock::now();
  uint64_t asked = 0;
  std::vector<uint64_t> told{};  // generations, of the last answer

  OfAHolder() { set_view(1); }

  void set_view(uint64_t number, std::vector<Incarnation> members = {}) {
    feed.set_view(number, members, now);
  }

  static RecordRow row_of(uint64_t page, uint64_t generation = 1) {
    return {.digest = {page, page}, .generation = generation};
  }
  void append(std::initializer_list<uint64_t> pages) {
    for (uint64_t page : pages) feed.append({{row_of(page)}});
  }
  FeedQuestion question(uint64_t position, uint64_t lease_view = 0) {
    return {++asked, position, lease_view};
  }
  FeedPart answer(Incarnation who, const FeedQuestion& question) {
    EXPECT_TRUE(feed.asked(who, question));
    std::vector<RecordRow> changes;
    const auto part = feed.answer(who, question, now, changes);
    told.clear();
    for (const RecordRow& row : changes) told.push_back(row.digest.lo);
    return part.value_or(FeedPart{});
  }
  FeedPart ask(Incarnation who, uint64_t position, uint64_t lease_view = 0) {
    return answer(who, question(position, lease_view));
  }
  // A follower that has all records.
  void follow(Incarnation who) { ask(who, feed.end()); }
  std::vector<Incarnation> behind(uint64_t position, bool of_earlier_view = false) {
    std::vector<Incarnation> behind;
    for (const auto& one : feed.behind(position, now, of_earlier_view))
      behind.push_back(one.follower);
    std::ranges::sort(behind);
    return behind;
  }
  uint64_t last_of(uint64_t page) {
    const Digest digest{page, page};
    return feed.last_of({&digest, 1}, now);
  }
  // Puts the changes pushed to a follower into `told`.
  std::optional<FeedPart> push(Incarnation who, size_t changes_max = 100) {
    std::vector<RecordRow> changes;
    const auto part = feed.push(who, changes_max, changes);
    told.clear();
    for (const RecordRow& row : changes) told.push_back(row.digest.lo);
    return part;
  }
  using Followers = std::vector<Incarnation>;
};

TEST_F(OfAHolder, FollowerBeginsWithAScanAndGetsAllLaterChangesInOrder) {
  append({1, 2});
  const FeedPart scan = ask(kAlice, 0);
  EXPECT_TRUE(scan.anew);
  EXPECT_EQ(scan.lease_view, 0u) << "changes during the scan are not told yet";
  append({3, 4});
  const FeedPart news = ask(kAlice, scan.to);
  EXPECT_EQ(told, (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(std::pair(news.from, news.to), std::pair(scan.to, scan.to + 2));
  EXPECT_EQ(news.lease_view, 1u);
  append({5, 6, 7, 8, 9, 10, 11, 12});
  ask(kAlice, news.to);
  EXPECT_EQ(told, (std::vector<uint64_t>{5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST_F(OfAHolder, FollowerTooFarBehindOrFromAnotherRunBeginsAnew) {
  follow(kAlice);
  const uint64_t position = feed.end();
  append({1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_TRUE(ask(kAlice, position).anew);
  EXPECT_TRUE(ask(kAlice, feed.end() + 1).anew);
  EXPECT_FALSE(ask(kAlice, feed.end()).anew);
  feed.forget();
  EXPECT_TRUE(ask(kAlice, position + 9).anew) << "some changes were not appended";
}

TEST_F(OfAHolder, NewsAreChangesThatMayBeToldAnotherViewOrAScan) {
  follow(kAlice);
  const uint64_t end = feed.end();
  append({1});
  const auto has_news = [&](uint64_t position, uint64_t lease_view, uint64_t told_end) {
    const FeedQuestion asks = question(position, lease_view);
    EXPECT_TRUE(feed.asked(kAlice, asks));
    return feed.has_news(kAlice, asks, told_end);
  };
  EXPECT_FALSE(has_news(end, 1, end)) << "told a moment later, with the next ones";
  EXPECT_TRUE(has_news(end, 1, feed.end()));
  EXPECT_TRUE(has_news(end, 0, end)) << "it has no lease";
  EXPECT_TRUE(has_news(0, 1, end));
  set_view(2);
  EXPECT_TRUE(has_news(end, 1, end));
}

TEST_F(OfAHolder, ChangesPushedWhileAQuestionWaitsAreNoNews) {
  follow(kAlice);
  const FeedQuestion waiting = question(feed.end(), 1);
  EXPECT_TRUE(feed.asked(kAlice, waiting));
  append({1, 2});
  feed.stands(kAlice, feed.end());
  EXPECT_FALSE(feed.has_news(kAlice, waiting, feed.end()));
  append({3});
  EXPECT_TRUE(feed.has_news(kAlice, waiting, feed.end()));
  std::vector<RecordRow> changes;
  EXPECT_EQ(feed.answer(kAlice, waiting, now, changes)->from, feed.end() - 1);
}

TEST_F(OfAHolder, FollowerWithALeaseIsWaitedForUntilItStandsThere) {
  follow(kAlice);
  follow(kBob);
  append({1});
  EXPECT_EQ(behind(feed.end()), (Followers{kAlice, kBob}));
  ask(kAlice, feed.end(), 1);
  EXPECT_EQ(behind(feed.end()), Followers{kBob}) << "an answer may be lost: only a question tells";
  ask(kBob, feed.end() - 1, 1);
  EXPECT_EQ(behind(feed.end()), Followers{kBob});
  now += kLease + std::chrono::seconds(1);
  EXPECT_EQ(behind(feed.end()), Followers{});
}

TEST_F(OfAHolder, FollowerWithoutALeaseIsNotWaitedFor) {
  ask(kAlice, 0);
  append({1});
  EXPECT_EQ(behind(feed.end()), Followers{}) << "a scan gives none";
  follow(kAlice);
  append({2});
  EXPECT_TRUE(feed.asked(kAlice, question(0, 0))) << "it has lost its records";
  EXPECT_EQ(behind(feed.end()), Followers{});
}

TEST_F(OfAHolder, LeaseThatWasNotGivenIsNotHeld) {
  EXPECT_TRUE(feed.asked(kAlice, question(feed.end(), 1)));
  append({1});
  EXPECT_EQ(behind(feed.end()), Followers{});
}

TEST_F(OfAHolder, LateQuestionChangesNothing) {
  follow(kAlice);
  const FeedQuestion late = question(0, 0);
  append({1});
  ask(kAlice, feed.end(), 1);
  EXPECT_FALSE(feed.asked(kAlice, late));
  append({2});
  EXPECT_EQ(behind(feed.end()), Followers{kAlice}) << "it has the lease still";
  const FeedQuestion earlier = question(feed.end(), 1);
  EXPECT_TRUE(feed.asked(kAlice, earlier));
  EXPECT_TRUE(feed.asked(kAlice, question(feed.end(), 1)));
  std::vector<RecordRow> changes;
  EXPECT_FALSE(feed.answer(kAlice, earlier, now, changes)) << "its channel has ended";
}

TEST_F(OfAHolder, LeaseOutlivesANewView) {
  follow(kAlice);
  set_view(2);
  append({1});
  EXPECT_EQ(behind(feed.end()), Followers{kAlice});
}

TEST_F(OfAHolder, OnlyChangesThatAFollowerMayNotKnowAreWaitedFor) {
  EXPECT_EQ(last_of(1), 1u);
  append({1});
  EXPECT_EQ(last_of(1), 1u) << "nobody follows";
  follow(kAlice);
  EXPECT_EQ(last_of(1), 1u) << "told";
  append({2, 1, 3});
  EXPECT_EQ(last_of(1), feed.end() - 1);
  EXPECT_EQ(behind(last_of(1)), Followers{kAlice});
  ask(kAlice, feed.end() - 1, 1);
  EXPECT_EQ(last_of(1), 1u);
  EXPECT_EQ(last_of(3), feed.end());
  append({4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(last_of(99), feed.end()) << "a change that it may not know is forgotten";
}

TEST_F(OfAHolder, PushHasTheChangesThatAFollowerLacks) {
  follow(kAlice);
  const uint64_t position = feed.end();
  append({1, 2, 3});
  FeedPart part = push(kAlice, 2).value();
  EXPECT_EQ(std::pair(part.from, part.to), std::pair(position, position + 2));
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(part.lease_view, 0u) << "only an answer gives a lease";
  EXPECT_EQ(push(kAlice)->to, feed.end());
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 2, 3})) << "it has not said that it took the others";
  feed.stands(kAlice, part.to);
  EXPECT_EQ(push(kAlice)->from, part.to);
  EXPECT_EQ(told, std::vector<uint64_t>{3});
  feed.stands(kAlice, feed.end());
  EXPECT_EQ(push(kAlice)->from, feed.end());
  EXPECT_EQ(told, std::vector<uint64_t>{});
}

TEST_F(OfAHolder, NothingIsPushedToWhoeverHasNoRecordsToAppendItTo) {
  append({1});
  EXPECT_FALSE(push(kAlice)) << "it has never asked";
  ask(kAlice, 0);
  EXPECT_FALSE(push(kAlice)) << "a scan is on its way";
  follow(kAlice);
  EXPECT_TRUE(push(kAlice));
  append({2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_FALSE(push(kAlice)) << "changes that it lacks are forgotten";
}

TEST_F(OfAHolder, AnswerToAPushTellsWhereAFollowerStands) {
  follow(kAlice);
  append({1, 2});
  const uint64_t end = feed.end();
  EXPECT_FALSE(feed.stands_at(kAlice, end));
  EXPECT_EQ(behind(end), Followers{kAlice});
  feed.stands(kAlice, end - 1);
  EXPECT_FALSE(feed.stands_at(kAlice, end));
  feed.stands(kAlice, end);
  EXPECT_TRUE(feed.stands_at(kAlice, end));
  EXPECT_EQ(behind(end), Followers{});
  feed.stands(kAlice, end - 1);
  EXPECT_TRUE(feed.stands_at(kAlice, end)) << "that answer was late";
  feed.stands(kAlice, end + 1);
  EXPECT_FALSE(feed.stands_at(kAlice, end + 1)) << "nobody stands behind the end";
  feed.stands(kBob, end);
  EXPECT_FALSE(feed.stands_at(kBob, end)) << "it has never asked";
  EXPECT_FALSE(feed.stands_at(kBob, 1));
}

TEST_F(OfAHolder, MemberThatHasNotAskedMayNotKnowTheView) {
  EXPECT_TRUE(feed.all_have_asked()) << "of nobody";
  set_view(1, {kAlice, kBob});
  EXPECT_FALSE(feed.all_have_asked());
  ask(kAlice, 0);
  ask(kCarol, 0);
  EXPECT_FALSE(feed.all_have_asked());
  ask(kBob, 0);
  EXPECT_TRUE(feed.all_have_asked());
  set_view(2, {kAlice, kBob});
  EXPECT_TRUE(feed.all_have_asked()) << "it has asked once";
  set_view(3, {kAlice, 4});
  EXPECT_FALSE(feed.all_have_asked());
  set_view(4, {kAlice, kBob});
  EXPECT_FALSE(feed.all_have_asked()) << "it had left, and begins anew";
}

TEST_F(OfAHolder, ReadersOfAnEarlierViewAreWaitedForUntilTheyAreInThisOne) {
  set_view(1, {kAlice, kBob});
  follow(kAlice);
  set_view(2, {kAlice, kBob});
  follow(kBob);
  append({1});
  EXPECT_EQ(behind(feed.end(), true), Followers{kAlice}) << "the other one knows the owners";
  ask(kAlice, feed.end() - 1, 1);
  EXPECT_EQ(behind(feed.end(), true), Followers{kAlice}) << "the answer may be lost";
  ask(kAlice, feed.end() - 1, 2);
  EXPECT_EQ(behind(feed.end(), true), Followers{});
  EXPECT_EQ(behind(feed.end()), (Followers{kAlice, kBob})) << "of both views";
}

TEST_F(OfAHolder, ReadersOfAnEarlierViewAreNotWaitedForBehindTheChangeOrTheLease) {
  follow(kAlice);
  follow(kBob);
  set_view(2);
  append({1});
  EXPECT_EQ(behind(feed.end(), true), (Followers{kAlice, kBob}));
  feed.stands(kBob, feed.end());
  EXPECT_EQ(behind(feed.end(), true), Followers{kAlice});
  now += kLease + std::chrono::seconds(1);
  EXPECT_EQ(behind(feed.end(), true), Followers{});
}

TEST_F(OfAHolder, ChangesThatAMemberMayNotKnowAreWaitedForEvenWithoutALease) {
  append({1});
  set_view(2, {kAlice, kBob});
  EXPECT_EQ(last_of(1), feed.end()) << "nobody has asked";
  follow(kAlice);
  EXPECT_EQ(last_of(1), feed.end()) << "one has";
  ask(kBob, 0);
  EXPECT_EQ(last_of(1), feed.end()) << "a scan is on its way";
  follow(kBob);
  EXPECT_EQ(last_of(1), 1u);
  append({2, 3});
  EXPECT_EQ(last_of(2), feed.end() - 1);
  now += kLease + std::chrono::seconds(1);
  EXPECT_EQ(last_of(2), feed.end() - 1) << "an owner must know it to answer for it";
  for (const Incarnation who : {kAlice, kBob}) feed.stands(who, feed.end() - 1);
  EXPECT_EQ(last_of(2), 1u);
  EXPECT_EQ(last_of(3), feed.end());
}

TEST_F(OfAHolder, OnlyALeaseOfSomebodyWhoHasLeftCounts) {
  follow(kAlice);
  append({1});
  set_view(2, {});
  EXPECT_EQ(last_of(1), feed.end());
  now += kLease + std::chrono::seconds(1);
  EXPECT_EQ(last_of(1), 1u);
}

TEST_F(OfAHolder, StandingsNameTheMembersThatHaveAsked) {
  set_view(2, {kAlice, kBob, 4});
  follow(kAlice);
  append({1, 2});
  ask(kBob, 0);
  ask(kCarol, 0);
  auto all = feed.standings(now);
  std::ranges::sort(all, {}, &Feed::Standing::follower);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].follower, kAlice);
  EXPECT_EQ(all[0].behind, 2u);
  EXPECT_TRUE(all[0].has_lease);
  EXPECT_EQ(all[1].follower, kBob);
  EXPECT_EQ(all[1].behind, UINT64_MAX);
  EXPECT_FALSE(all[1].has_lease);
}

TEST_F(OfAHolder, OnlyOwnersMustHaveAsked) {
  set_view(1, {kAlice, kBob});
  feed.set_owners({{kBob}});
  ask(kBob, 0);
  EXPECT_TRUE(feed.all_have_asked()) << "the other one follows nobody";
  set_view(2, {kAlice, kBob});
  EXPECT_FALSE(feed.all_have_asked()) << "of a new view, all are owners at first";
}

TEST_F(OfAHolder, FollowerGetsWhatItWantsAndAllWithdrawals) {
  const auto odd = [](const Digest& digest) { return digest.lo % 2 == 1; };
  follow(kAlice);
  const uint64_t position = feed.end();
  append({1, 2, 3, 4});
  RecordRow gone = row_of(2, 2);
  gone.flags = kRecordWithdraw;
  feed.append({&gone, 1});
  std::vector<RecordRow> changes;
  const auto pages = [&] {
    std::vector<uint64_t> all;
    for (const RecordRow& row : changes) all.push_back(row.digest.lo);
    changes.clear();
    return all;
  };
  EXPECT_EQ(feed.push(kAlice, 2, changes, odd)->to, position + 3);
  EXPECT_EQ(pages(), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(feed.push(kAlice, 9, changes, odd)->to, feed.end());
  EXPECT_EQ(pages(), (std::vector<uint64_t>{1, 3, 2})) << "it may have had it before";
  const FeedQuestion asks = question(position);
  EXPECT_TRUE(feed.asked(kAlice, asks));
  const auto part = feed.answer(kAlice, asks, now, changes, odd);
  EXPECT_EQ(pages(), (std::vector<uint64_t>{1, 3, 2}));
  EXPECT_EQ(part->to, feed.end());
  EXPECT_FALSE(part->is_whole());
}

TEST_F(OfAHolder, LeaseComesWithTheEndOfTheLogAlone) {
  Feed large(1 << 16);
  large.set_view(1, {}, now);
  const std::vector<RecordRow> many(kChangesPerPart + 1);
  const uint64_t position = large.end();
  large.append(many);
  EXPECT_TRUE(large.asked(kAlice, {1, position, 0}));
  std::vector<RecordRow> changes;
  const auto part = large.answer(kAlice, {1, position, 0}, now, changes);
  EXPECT_EQ(part->to, position + kChangesPerPart);
  EXPECT_EQ(part->lease_view, 0u);
  EXPECT_EQ(changes.size(), kChangesPerPart);
  changes.clear();
  EXPECT_TRUE(large.asked(kAlice, {2, part->to, 0}));
  EXPECT_EQ(large.answer(kAlice, {2, part->to, 0}, now, changes)->lease_view, 1u);
}

TEST_F(OfAHolder, FollowerWithAnotherRingReadsAllRowsBesideItsRecords) {
  follow(kAlice);
  const uint64_t position = feed.end();
  append({1});
  FeedQuestion asks = question(position, 1);
  asks.scans = 1;
  EXPECT_TRUE(feed.asked(kAlice, asks));
  EXPECT_TRUE(feed.has_news(kAlice, asks, position)) << "at once";
  std::vector<RecordRow> changes;
  const auto part = feed.answer(kAlice, asks, now, changes);
  EXPECT_FALSE(part->anew);
  EXPECT_EQ(std::pair(part->from, part->to), std::pair(position, position));
  EXPECT_EQ(part->lease_view, 0u) << "changes during the scan are not told yet";
}

}  // namespace
}  // namespace peercached
