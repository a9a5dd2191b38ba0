// The records of a node that its followers receive.
#include "engine/record_feed.h"

#include <gtest/gtest.h>

#include <future>

namespace peercached {
namespace {

using Told = RecordFeed::Told;

std::vector<RecordRow> rows_of(std::initializer_list<uint64_t> generations) {
  std::vector<RecordRow> rows;
  for (uint64_t generation : generations) rows.emplace_back().generation = generation;
  return rows;
}

struct OpenFeed : RecordFeed {
  explicit OpenFeed(size_t changes_max) : RecordFeed(changes_max) { open(); }
};

struct Follower {
  RecordFeed& feed;
  uint64_t position = 0;
  std::vector<uint64_t> heard{};

  Told read(int64_t wait_ms = 20'000) {
    std::vector<RecordRow> changes;
    const Told told = feed.read(position, Deadline::after_ms(wait_ms), changes);
    for (const RecordRow& row : changes) heard.push_back(row.generation);
    return told;
  }
};

TEST(RecordFeed, FollowerGetsAllLaterRecordsInOrder) {
  OpenFeed feed(8);
  feed.append(rows_of({1, 2}));
  Follower one{feed};
  EXPECT_EQ(one.read(), Told::forgotten) << "it begins with a scan";
  feed.append(rows_of({3}));
  feed.append(rows_of({4, 5}));
  while (one.heard.size() < 3) EXPECT_EQ(one.read(), Told::news);
  feed.append(rows_of({6, 7, 8, 9, 10, 11, 12, 13}));  // fills the whole ring of records
  while (one.heard.size() < 11) EXPECT_EQ(one.read(), Told::news);
  EXPECT_EQ(one.heard, (std::vector<uint64_t>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}));
}

TEST(RecordFeed, FollowerTooFarBehindStartsOver) {
  OpenFeed feed(4);
  Follower one{feed};
  one.read();
  feed.append(rows_of({1, 2, 3, 4, 5}));
  EXPECT_EQ(one.read(), Told::forgotten);
  EXPECT_TRUE(one.heard.empty());
  feed.append(rows_of({6}));
  EXPECT_EQ(one.read(), Told::news);
  EXPECT_EQ(one.heard, std::vector<uint64_t>{6});
  one.position += 100;  // as if from an earlier run of this node
  EXPECT_EQ(one.read(), Told::forgotten);
}

TEST(RecordFeed, FollowerWaitsForNewsUntilItsDeadline) {
  OpenFeed feed(4);
  Follower one{feed};
  one.read();
  EXPECT_EQ(one.read(1), Told::news);
  EXPECT_TRUE(one.heard.empty());
  auto told = std::async(std::launch::async, [&] { return one.read(); });
  feed.append(rows_of({1}));
  EXPECT_EQ(told.get(), Told::news);
  EXPECT_EQ(one.heard, std::vector<uint64_t>{1});
}

TEST(RecordFeed, ReadReturnsRecordsAppendedBeforeIt) {
  OpenFeed feed(4);
  Follower one{feed};
  one.read();
  feed.append(rows_of({1}));  // the feed announces it to followers a moment later
  one.read(0);
  EXPECT_EQ(one.heard, std::vector<uint64_t>{1});
}

TEST(RecordFeed, UnopenedFeedGivesNoRecords) {
  RecordFeed feed(4);
  Follower one{feed};
  feed.append(rows_of({1}));
  EXPECT_EQ(one.read(1), Told::closed);
  auto told = std::async(std::launch::async, [&] { return one.read(); });
  feed.open();
  EXPECT_EQ(told.get(), Told::forgotten);
}

TEST(RecordFeed, ForgetMakesFollowersStartOver) {
  OpenFeed feed(4);
  Follower one{feed};
  one.read();
  auto told = std::async(std::launch::async, [&] { return one.read(); });
  feed.forget();
  EXPECT_EQ(told.get(), Told::forgotten);
  feed.append(rows_of({1}));
  EXPECT_EQ(one.read(), Told::news);
  EXPECT_EQ(one.heard, std::vector<uint64_t>{1});
}

TEST(RecordFeed, CloseWakesWaitingFollowers) {
  OpenFeed feed(4);
  Follower one{feed};
  one.read();
  auto told = std::async(std::launch::async, [&] { return one.read(); });
  feed.close();
  EXPECT_EQ(told.get(), Told::closed);
}

}  // namespace
}  // namespace peercached
