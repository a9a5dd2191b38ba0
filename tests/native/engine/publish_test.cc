// Publishes to owners: frames carry most records, the control plane carries the rest.
#include "engine_fixture.h"
#include "transfer/scripted_peer.h"

namespace peercached {
namespace {

constexpr uint64_t kFirstView = 3;

// `a` owns all digests except one. Pages are set at `b`.
class Publish : public EnginePair {
 protected:
  void SetUp() override {
    open(16 << 20);
    a_owns_all(kFirstView);
    b_->engine.nodes().open_owner(b_->peer_index, true);
  }

  // Returns how often setting pages needs the control plane. The pages must be found in any case.
  // Starts over if this machine paused so long that a frame was given up.
  uint64_t questions_for(const std::string& label, size_t count = 20) {
    const uint64_t fence = b_->engine.publisher().fence();
    const uint64_t asked = questions_of(label, count);
    if (b_->engine.publisher().fence() == fence || asked == 0) return asked;
    std::this_thread::sleep_for(kSlowFor);
    return questions_for(label + "'", count);
  }
  uint64_t questions_of(const std::string& label, size_t count) {
    Pages in(label, count, 1000);
    in.fill();
    const uint64_t before = b_->engine.control().posted();
    EXPECT_EQ(b_->set(in), std::vector(count, PageStatus::ok));
    const uint64_t asked = b_->engine.control().posted() - before;
    Pages out(label, count, 1000);
    EXPECT_EQ(a_->get(out), std::vector(count, PageStatus::ok));
    EXPECT_EQ(out.memory, in.memory);
    return asked;
  }
};

TEST_F(Publish, RecordsTakenByAllOwnersSkipTheControlPlane) {
  EXPECT_EQ(questions_for("first"), 0u);
  EXPECT_EQ(questions_for("more", 3000), 0u);
}

TEST_F(Publish, ClosedOwnerIsToldByTheControlPlane) {
  b_->engine.nodes().open_owner(b_->peer_index, false);
  EXPECT_EQ(questions_for("closed"), 1u);
  b_->engine.nodes().open_owner(b_->peer_index, true);
  EXPECT_EQ(questions_for("open"), 0u);
  a_owns_all(kFirstView + 1);
  EXPECT_EQ(questions_for("a new ring closes all"), 1u);
}

TEST_F(Publish, SuspectOwnerIsToldByTheControlPlane) {
  b_->engine.nodes().set_suspect(b_->peer_index, true);
  EXPECT_EQ(questions_for("suspect"), 1u);
}

TEST_F(Publish, OwnerRefusingTheFenceIsToldByTheControlPlane) {
  a_->engine.directory().raise_fence(a_->peer_index, b_->engine.publisher().fence() + 1);
  EXPECT_EQ(questions_for("low fence"), 1u);
  EXPECT_EQ(b_->engine.publisher().fence(), 1u) << "it has answered: nothing comes late";
}

// An owner that answers only when the test lets it.
class SlowOwner : public Publish {
 protected:
  void SetUp() override {
    Publish::SetUp();
    index_ = b_->engine.peers().add("slow", testing::kHolderIncarnation);
    b_->engine.peers().connect(index_, owner_.endpoint());
    set_ring(*b_, index_, kSelfHolder, kFirstView);
    b_->engine.nodes().open_owner(index_, true);
  }
  void TearDown() override {
    let_go_ = true;
    b_->engine.peers().drop(index_);  // closes its channels
    Publish::TearDown();
  }

  std::atomic<bool> let_go_{false}, answered_{false};
  std::function<void(const Digest&, uint64_t fence)> on_frame_ = [](const Digest&, uint64_t) {};
  HolderIndex index_ = kNoHolder;
  testing::ScriptedHolder owner_{[this](testing::Wire& wire, int) {
    if (!testing::ScriptedHolder::greet(wire)) return;
    for (auto asked = wire.receive_frame(); !asked.empty(); asked = wire.receive_frame()) {
      uint64_t request = 0, fence = 0;
      std::vector<RecordRow> rows;
      ASSERT_EQ(tcp::parse_publish(testing::body_of(asked), request, fence, rows), nullptr);
      on_frame_(rows[0].digest, fence);
      while (!let_go_) std::this_thread::yield();
      std::vector<std::byte> answer;
      tcp::append_published(answer, request, true);
      answered_ = true;
      wire.send(answer);
    }
  }};
};

TEST_F(SlowOwner, RemovalWaitsForSetsWithRecordsInFlight) {
  std::atomic<bool> begun{false};
  Digest asked;
  uint64_t fence_of_frame = 0;
  on_frame_ = [&](const Digest& digest, uint64_t fence) {
    if (begun) return;
    asked = digest;
    fence_of_frame = fence;
    begun = true;
  };
  std::thread setting([&] {
    // On a busy machine a frame may be given up before it is sent.
    for (int i = 0; !begun; ++i) {
      if (i > 0) std::this_thread::sleep_for(kSlowFor);
      Pages in("page" + std::to_string(i), 1, 1000);
      in.fill();
      b_->set(in);
    }
  });
  while (!begun) std::this_thread::yield();
  std::atomic<bool> dropped{false};
  std::thread watching([&] {
    // The removal has taken the page out of the pool. Unless it waits for the set, it ends now.
    for (uint8_t held = 1; held != 0;) {
      b_->engine.storage().pool().contains({&asked, 1}, false, {&held, 1});
    }
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    dropped = true;
    let_go_ = true;
  });
  std::vector<RecordRow> rows;
  EXPECT_EQ(b_->engine.removals().begin({&asked, 1}, rows), Removals::Begun::kept);
  const bool given_up = b_->engine.publisher().fence() > fence_of_frame;  // this machine paused
  EXPECT_TRUE(answered_ || given_up) << "the record may come behind its withdrawal";
  EXPECT_EQ(rows.size(), 1u);
  watching.join();
  setting.join();
  b_->engine.removals().end({&asked, 1});
}

TEST_F(EnginePair, ShardDoesNotNamePagesUnderRemoval) {
  open(16 << 20);
  Pages in("page", 3, 1000);
  in.fill();
  tell_owners_ = true;
  ASSERT_EQ(a_->set(in), std::vector(3, PageStatus::ok));
  std::vector<Digest> digests;
  for (const auto& key : in.keys) {
    digests.push_back(digest_of(b_->context(1).ns->current().key, key));
  }
  std::vector<RecordRow> removed, found;
  ASSERT_EQ(b_->engine.removals().begin({digests.data(), 2}, removed), Removals::Begun::kept);
  b_->engine.directory().shard().lookup(digests, found);
  ASSERT_EQ(found.size(), 1u) << "of the third page alone";
  EXPECT_EQ(found[0].digest, digests[2]);
  b_->engine.removals().end({digests.data(), 2});
}

TEST_F(EnginePair, EndOfARemovalForgetsLocationsCachedMeanwhile) {
  open(16 << 20);
  Pages page("page", 1, 1000);
  page.fill();
  ASSERT_EQ(a_->set(page), std::vector(1, PageStatus::ok));
  const Digest digest = digest_of(b_->context(1).ns->current().key, page.keys[0]);
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin({&digest, 1}, rows), Removals::Begun::kept);
  // `a` has not heard of the removal yet.
  ASSERT_EQ(b_->get(page), std::vector(1, PageStatus::ok));
  RecordRow cached;
  ASSERT_TRUE(b_->engine.locations().find(digest, TimePoint::min(), cached));
  b_->engine.removals().end({&digest, 1});
  EXPECT_FALSE(b_->engine.locations().find(digest, TimePoint::min(), cached));
}

TEST_F(SlowOwner, ImpatientWorkerDoesNotMarkAnOwnerSlow) {
  // So short a patience may leave no time for a frame. An owner that is late because this machine
  // paused is slow.
  b_->patience_ms = 5;
  for (bool given_up = false; !given_up;
       b_->patience_ms = std::min<int64_t>(b_->patience_ms * 2, 80)) {
    const uint64_t before = b_->engine.publisher().fence();
    const TimePoint began = Clock::now();
    Pages hasty("hasty " + std::to_string(began.time_since_epoch().count()), 1, 1000);
    hasty.fill();
    b_->set(hasty);
    const bool paused = Clock::now() - began >= kFramePatience;
    if (paused) std::this_thread::sleep_for(kSlowFor);
    given_up = b_->engine.publisher().fence() > before && !paused;
  }
  const uint64_t fence = b_->engine.publisher().fence();
  let_go_ = true;
  b_->patience_ms = kPatienceMs;
  const uint64_t before = b_->engine.control().posted();
  Pages next("next", 1, 1000);
  next.fill();
  EXPECT_EQ(b_->set(next), std::vector{PageStatus::ok});
  EXPECT_TRUE(b_->engine.control().posted() == before || b_->engine.publisher().fence() > fence)
      << "it is not slow, unless this machine stood still";
}

TEST_F(Publish, SetQueuesAtTheControlPlaneWhileItIsBehind) {
  deaf_ = true;
  for (size_t i = 0; i <= kBehindEvents; ++i) b_->engine.control().post(EventKind::publish, {});
  Pages in("behind", 1, 1000);
  in.fill();
  const uint64_t before = b_->engine.control().posted();
  std::thread setting([&] { EXPECT_EQ(b_->set(in), std::vector{PageStatus::ok}); });
  while (b_->engine.control().posted() == before) std::this_thread::yield();
  deaf_ = false;
  setting.join();
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
