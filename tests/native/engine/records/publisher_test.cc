// Sets wait until whoever readers may ask has their records (docs/directory.md, rules 7 to 10).
#include "engine/records/publisher.h"

#include <gtest/gtest.h>

#include <future>

#include "transfer/fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kRingView = 3;
constexpr Incarnation kOwner = 'o', kMember = 'm';

// Gives what is pushed to the test, which answers for the owners.
class PushesOnly final : public TransferEngine {
 public:
  std::function<void(PushBatch&, Deadline)> on_push = [](PushBatch&, Deadline) {};
  std::atomic<unsigned> rounds{0};

  void push(std::span<PushBatch> batches, Deadline deadline) override {
    ++rounds;
    for (PushBatch& batch : batches) on_push(batch, deadline);
  }
  void add_peer(HolderIndex, const PeerEndpoint&) override {}
  void drop_peer(HolderIndex) override {}
  void read(std::span<ReadBatch>, Deadline, WriteGate&, PageSink&) override {}
  std::vector<PeerHealth> health() const override { return {}; }
  const char* name() const override { return "pushes"; }
  void hold(std::span<HoldBatch>, uint32_t, Deadline) override {}
  void lookup(std::span<LookupBatch>, uint64_t, Deadline) override {}
};

// One node owns all digests except one. Another member owns that one. Both follow us.
class PublisherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const HolderIndex index : {owner_, member_}) nodes_.set_connected(index, true);
    publisher_.set_patience(std::chrono::milliseconds(20'000));
    feed().open();
    set_ring(kRingView);
    set_view(kRingView);
    follow(kOwner);
    follow(kMember);
    transfer_.on_push = [](PushBatch& batch, Deadline) { answer(batch, batch.to); };
  }

  void set_ring(uint64_t view_number) {
    constexpr uint64_t kPlace = 1ull << 62;
    directory_.set_ring(std::make_shared<const Ring>(std::vector<uint64_t>{kPlace, kPlace + 1},
                                                     std::vector{owner_, member_}, 1, view_number));
  }
  void set_view(uint64_t view_number) {
    const Incarnation members[] = {kOwner, kMember};
    feed().set_view(view_number, members);
  }
  RecordFeed& feed() { return publisher_.feed(); }
  uint64_t end() { return feed().feed().end(); }
  // A question, and its answer.
  void ask(Incarnation who, uint64_t position, uint64_t lease_view, uint64_t scans = 0) {
    std::vector<RecordRow> changes;
    const FeedQuestion question{++asked_, position, lease_view, 0, scans};
    feed().asked(who, question);
    feed().answer(who, question, changes);
  }
  // It has all records, and gets a lease.
  void follow(Incarnation who) { ask(who, end(), 0); }

  static RecordRow row_of(uint64_t page, uint8_t flags = kRecordResident) {
    RecordRow row{.digest = {page, page}, .generation = 1, .length = 9};
    row.flags = flags;
    return row;
  }
  void tell(uint64_t page, uint8_t flags = kRecordResident) {
    const RecordRow row = row_of(page, flags);
    publisher_.append({&row, 1});
  }
  static void answer(PushBatch& batch, uint64_t stands_at) {
    batch.answered = true;
    batch.stands_at = stands_at;
  }
  bool wait_told(uint64_t page, int64_t ms = 20'000) {
    const Digest digest{page, page};
    return publisher_.wait_told({&digest, 1}, Deadline::after_ms(ms));
  }
  // As a set does it.
  bool set(uint64_t page, int64_t ms = 20'000) {
    tell(page);
    return wait_told(page, ms);
  }

  OperationCounters counters_;
  NodeTable nodes_{"self", 's'};
  const HolderIndex owner_ = nodes_.add("owner", kOwner), member_ = nodes_.add("member", kMember);
  Running running_;
  Directory directory_{1000, {}, nodes_, running_, counters_};
  ControlQueue control_{100, 1 << 20};
  PushesOnly transfer_;
  testing::RecordingWatcher watcher_;
  Publisher publisher_{{nodes_, directory_, control_, transfer_, watcher_, counters_}};
  std::atomic<uint64_t> asked_{0};
};

TEST_F(PublisherTest, SetIsToldOnceItsOwnersStandBehindIt) {
  std::vector<HolderIndex> pushed_to;
  transfer_.on_push = [&](PushBatch& batch, Deadline) {
    pushed_to.push_back(batch.peer);
    EXPECT_EQ(batch.from, end() - 1);
    ASSERT_EQ(batch.rows.size(), 1u);
    EXPECT_EQ(batch.rows[0].digest, (Digest{7, 7}));
    answer(batch, end());
  };
  EXPECT_TRUE(set(7));
  EXPECT_EQ(pushed_to, std::vector{owner_}) << "others read the log when they ask";
  EXPECT_EQ(counters_.publish_frames, 1u);
  EXPECT_TRUE(wait_told(7));
  EXPECT_EQ(counters_.publish_frames, 1u) << "it stands there";
}

TEST_F(PublisherTest, WithdrawalNeverOvertakesItsRecord) {
  std::vector<uint8_t> flags;
  transfer_.on_push = [&](PushBatch& batch, Deadline) {
    for (const RecordRow& row : batch.rows) flags.push_back(row.flags);
    answer(batch, batch.to);
  };
  tell(1);
  tell(1, kRecordWithdraw);
  tell(2);
  EXPECT_TRUE(wait_told(2));
  EXPECT_EQ(flags, (std::vector<uint8_t>{kRecordResident, kRecordWithdraw, kRecordResident}));
}

TEST_F(PublisherTest, ConcurrentSetsShareTheirRounds) {
  constexpr unsigned kSets = 8;
  std::atomic<unsigned> appended{0};
  transfer_.on_push = [&](PushBatch& batch, Deadline) {
    while (appended < kSets) std::this_thread::yield();
    // So that the others wait for the next round.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    answer(batch, batch.to);
  };
  std::vector<std::future<bool>> sets;
  for (unsigned i = 0; i < kSets; ++i) {
    sets.push_back(std::async(std::launch::async, [&, i] {
      tell(i + 1);
      ++appended;
      return wait_told(i + 1);
    }));
  }
  for (auto& one : sets) EXPECT_TRUE(one.get());
  EXPECT_LT(transfer_.rounds, kSets - 2) << "one pushes for all that wait meanwhile";

  transfer_.on_push = [](PushBatch&, Deadline) { throw std::bad_alloc(); };
  EXPECT_THROW(set(kSets + 1), std::bad_alloc);
  transfer_.on_push = [](PushBatch& batch, Deadline) { answer(batch, batch.to); };
  EXPECT_TRUE(set(kSets + 2)) << "that round is over";
}

TEST_F(PublisherTest, OwnerThatReadsAScanIsNotInTrouble) {
  const uint64_t position = end();
  transfer_.on_push = [&](PushBatch& batch, Deadline) { answer(batch, position); };
  publisher_.set_patience(std::chrono::milliseconds(300));
  ask(kOwner, position, kRingView, /*scans=*/1);
  EXPECT_FALSE(set(1));
  EXPECT_TRUE(watcher_.troubles().empty());
  ask(kOwner, position, kRingView);
  EXPECT_FALSE(set(2));
  EXPECT_EQ(watcher_.troubles().size(), 1u) << "it reads none, and takes no push";
}

TEST_F(PublisherTest, SilentOwnerIsSlowAndThenInTrouble) {
  transfer_.on_push = [](PushBatch& batch, Deadline) { answer(batch, 0); };
  EXPECT_FALSE(set(1, 50));
  EXPECT_FALSE(nodes_.slow(owner_, Clock::now())) << "it has answered in time: it has no records";
  EXPECT_TRUE(watcher_.troubles().empty()) << "the worker was impatient";
  TimePoint pushed_until{};
  transfer_.on_push = [&](PushBatch&, Deadline deadline) { pushed_until = deadline.at; };
  const Digest one{1, 1};
  const Deadline soon = Deadline::after_ms(10);
  EXPECT_FALSE(publisher_.wait_told({&one, 1}, soon));
  EXPECT_LE(pushed_until, soon.at);
  transfer_.rounds = 0;
  publisher_.set_patience(std::chrono::milliseconds(300));
  transfer_.on_push = [](PushBatch&, Deadline deadline) {
    std::this_thread::sleep_until(deadline.at);
  };
  EXPECT_FALSE(set(1));
  EXPECT_TRUE(nodes_.slow(owner_, Clock::now()));
  EXPECT_EQ(transfer_.rounds, 1u) << "a slow owner is not asked on the hot path";
  ASSERT_EQ(watcher_.troubles().size(), 1u);
  EXPECT_EQ(watcher_.troubles()[0], "1: it did not take records in time");
}

TEST_F(PublisherTest, OwnerThatAsksByItselfNeedsNoPush) {
  nodes_.set_slow(owner_, TimePoint::max());
  auto told = std::async(std::launch::async, [&] { return set(1); });
  while (end() == 1) std::this_thread::yield();
  ask(kOwner, end(), kRingView);
  EXPECT_TRUE(told.get());
  EXPECT_EQ(transfer_.rounds, 0u);
}

TEST_F(PublisherTest, OwnerThatIsSuspectOrLeavesIsNotWaitedForAndTheSetIsUntold) {
  nodes_.set_suspect(owner_, true);
  EXPECT_FALSE(set(1));
  EXPECT_EQ(transfer_.rounds, 0u);
  nodes_.set_suspect(owner_, false);
  EXPECT_TRUE(wait_told(1)) << "the next set of the page tells it";
  transfer_.on_push = [&](PushBatch&, Deadline) { nodes_.drop(owner_); };
  EXPECT_FALSE(set(1));
  EXPECT_TRUE(watcher_.troubles().empty());
}

TEST_F(PublisherTest, OwnerWithoutALeaseIsWaitedForOnlyAMoment) {
  ask(kOwner, 0, 0);
  EXPECT_FALSE(set(1)) << "it finds none of our pages";
  EXPECT_TRUE(watcher_.troubles().empty());
  auto told = std::async(std::launch::async, [&] { return wait_told(1); });
  follow(kOwner);
  EXPECT_TRUE(told.get());
}

TEST_F(PublisherTest, SetIsUntoldWhileAMemberHasNotAsked) {
  const Incarnation members[] = {kOwner, kMember, 'n'};
  set_ring(kRingView + 1);
  feed().set_view(kRingView + 1, members);
  for (const Incarnation who : {kOwner, kMember}) ask(who, end(), kRingView + 1);
  EXPECT_FALSE(set(1)) << "the newcomer may say that the page is nowhere";
  ask('n', 0, 0);
  EXPECT_TRUE(wait_told(1));
}

TEST_F(PublisherTest, FollowerWithALeaseOfAnEarlierViewIsWaitedFor) {
  set_ring(kRingView + 1);
  set_view(kRingView + 1);
  ask(kOwner, end(), kRingView);
  ask(kOwner, end(), kRingView + 1);
  EXPECT_FALSE(set(1, 50)) << "its readers may ask the owners of the view before";
  auto told = std::async(std::launch::async, [&] { return wait_told(1); });
  ask(kMember, end(), kRingView);
  EXPECT_TRUE(told.get());
  ask(kMember, end(), kRingView + 1);
  EXPECT_TRUE(set(2)) << "it is in this view now";
}

TEST_F(PublisherTest, SetIsUntoldUntilTheFeedHasTheViewOfTheRing) {
  set_ring(kRingView + 1);
  EXPECT_FALSE(set(1, 50)) << "the leases of the view before still count as of this one";
  auto told = std::async(std::launch::async, [&] { return wait_told(1); });
  set_view(kRingView + 1);
  ask(kMember, end(), kRingView);
  EXPECT_TRUE(told.get());
}

TEST_F(PublisherTest, ClosedFeedEndsWaiting) {
  nodes_.set_slow(owner_, TimePoint::max());
  auto told = std::async(std::launch::async, [&] { return set(1, 600'000); });
  while (end() == 1) std::this_thread::yield();
  const TimePoint began = Clock::now();
  feed().close();
  EXPECT_FALSE(told.get());
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(3)) << "the lease lasts longer";
  EXPECT_TRUE(watcher_.troubles().empty());
}

TEST_F(PublisherTest, NodeAloneNeedsToTellNobody) {
  directory_.set_ring(std::make_shared<const Ring>(std::vector<uint64_t>{1},
                                                   std::vector{kSelfHolder}, 1, kRingView + 1));
  feed().set_view(kRingView + 1, {});
  for (const Incarnation who : {kOwner, kMember}) ask(who, 0, 0);  // they have no lease any more
  EXPECT_TRUE(set(1));
  EXPECT_EQ(transfer_.rounds, 0u);
}

TEST(UnderWay, WaitsOnlyForWorkBegunBefore) {
  UnderWay works;
  works.wait();
  auto first = std::make_unique<UnderWay::Work>(works);
  std::atomic<bool> waited{false};
  std::thread waiting([&] {
    works.wait();
    waited = true;
  });
  // After wait() has switched sides, new work cannot delay it.
  std::unique_ptr<UnderWay::Work> later;
  for (int i = 0; i < 1000; ++i) {
    later = std::make_unique<UnderWay::Work>(works);
    std::this_thread::yield();
  }
  EXPECT_FALSE(waited);
  first.reset();
  // `later` may have begun before wait(), and would then delay it.
  later.reset();
  waiting.join();
  EXPECT_TRUE(waited);
}

}  // namespace
}  // namespace peercached
