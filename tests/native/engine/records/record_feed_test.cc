// The records of a node that its followers receive.
#include "engine/records/record_feed.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <future>

namespace peercached {
namespace {

constexpr Incarnation kFollower = 0xf;

std::vector<RecordRow> rows_of(std::initializer_list<uint64_t> generations) {
  std::vector<RecordRow> rows;
  for (uint64_t generation : generations) rows.emplace_back().generation = generation;
  return rows;
}

struct OpenFeed : RecordFeed {
  explicit OpenFeed(std::function<void()> on_moved = [] {}) : RecordFeed(4, std::move(on_moved)) {
    set_view(1, {});
    open();
  }
};

struct Follower {
  RecordFeed& feed;
  FeedQuestion next{.number = 1};
  std::vector<uint64_t> heard{};

  // Waits for news. False: there are none at the end of this time.
  bool wait(int wait_ms = 20'000) {
    while (!feed.has_news(kFollower, next)) {
      pollfd news{feed.news_fd(), POLLIN, 0};
      if (::poll(&news, 1, wait_ms) == 0) return false;
      feed.hear_news();
    }
    return true;
  }
  // Asks, and reads the answer when its time is over. False: there is none.
  bool read(int wait_ms = 20'000) {
    std::vector<RecordRow> changes;
    if (!feed.asked(kFollower, next)) return false;
    (void)wait(wait_ms);
    const auto part = feed.answer(kFollower, next, changes);
    for (const RecordRow& row : changes) heard.push_back(row.generation);
    if (part) next = {next.number + 1, part->to, part->lease_view};
    return part.has_value();
  }
  // Reads until it has a lease.
  void join() {
    while (next.lease_view == 0) ASSERT_TRUE(read());
    feed.hear_news();
  }
  // Has asked, and waits.
  void ask() { ASSERT_TRUE(feed.asked(kFollower, next)); }
};

TEST(RecordFeed, FollowerHearsOfChangesAMomentLaterTogether) {
  OpenFeed feed;
  Follower one{feed};
  one.join();
  one.ask();
  EXPECT_FALSE(one.wait(0));
  feed.append(rows_of({1}));
  feed.append(rows_of({2}));
  EXPECT_FALSE(feed.has_news(kFollower, one.next)) << "more may come";
  EXPECT_TRUE(one.wait());
  ++one.next.number;
  EXPECT_TRUE(one.read());
  EXPECT_EQ(one.heard, (std::vector<uint64_t>{1, 2}));
  one.ask();
  EXPECT_FALSE(one.wait(0)) << "it rings once";
}

TEST(RecordFeed, FollowerHearsOfARemovalAtOnce) {
  OpenFeed feed;
  Follower one{feed};
  one.join();
  one.ask();
  feed.append(rows_of({1}));
  (void)feed.tell_now({});
  EXPECT_TRUE(one.wait(5)) << "without tell_now() it takes 20 ms";
}

TEST(RecordFeed, ReadReturnsRecordsAppendedBeforeIt) {
  OpenFeed feed;
  Follower one{feed};
  one.join();
  feed.append(rows_of({1}));  // the feed announces it to followers a moment later
  one.read(0);
  EXPECT_EQ(one.heard, std::vector<uint64_t>{1});
}

TEST(RecordFeed, UnopenedFeedGivesNoRecords) {
  RecordFeed feed(4, [] {});
  Follower one{feed};
  feed.append(rows_of({1}));
  EXPECT_FALSE(one.read(0));
  ++one.next.number;
  one.ask();
  EXPECT_FALSE(one.wait(0));
  feed.open();
  EXPECT_TRUE(one.wait());
}

TEST(RecordFeed, AnotherViewAndLostChangesAreNews) {
  OpenFeed feed;
  Follower one{feed};
  one.join();
  feed.set_view(2, {});
  EXPECT_TRUE(one.read());
  EXPECT_EQ(one.next.lease_view, 2u);
  feed.forget();
  EXPECT_TRUE(one.read());
  EXPECT_EQ(one.next.lease_view, 0u);
}

TEST(RecordFeed, AWaiterForAFollowerHearsWhenItAsksAgain) {
  std::atomic<unsigned> moved{0};
  OpenFeed feed([&] { ++moved; });
  Follower one{feed};
  one.join();
  EXPECT_EQ(moved, 0u) << "nobody waits";
  feed.append(rows_of({1}));
  const uint64_t position = feed.tell_now({});
  EXPECT_EQ(feed.behind(position).size(), 1u);
  EXPECT_TRUE(one.read());
  one.read(0);
  EXPECT_GE(moved, 1u);
  EXPECT_EQ(feed.behind(position).size(), 0u);
}

TEST(RecordFeed, CloseIsNewsAndEndsAllAnswers) {
  OpenFeed feed;
  Follower one{feed};
  one.join();
  one.ask();
  EXPECT_FALSE(one.wait(0));
  feed.close();
  EXPECT_TRUE(one.wait());
  std::vector<RecordRow> changes;
  EXPECT_FALSE(feed.answer(kFollower, one.next, changes));
}

TEST(RecordFeed, AWaiterForAMoveHearsOfQuestionsAndOfAnswersToPushes) {
  OpenFeed feed;
  Follower one{feed};
  const TimePoint patience = Clock::now() + std::chrono::seconds(60);
  const auto wakes = [&](const auto& move) {
    const uint64_t seen = feed.moves();
    auto waiting = std::async(std::launch::async, [&] { feed.wait_moved(seen, patience); });
    move();
    waiting.get();
  };
  wakes([&] { one.join(); });
  wakes([&] { feed.stands(kFollower, 1); });
  wakes([&] { feed.close(); });
  EXPECT_LT(Clock::now(), patience);
  const uint64_t seen = feed.moves();
  EXPECT_FALSE(feed.wait_moved(seen, patience)) << "nobody moves any more";
}

}  // namespace
}  // namespace peercached
