// Lookups that a copy of another node's records may answer, and lookups that it may not.
#include "engine_fixture.h"
#include "transfer/scripted_peer.h"

namespace peercached {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// Each side believes that it owns all digests, and publishes nothing to the other. So `b` can find
// a's pages only in a copy of a's records.
class Feed : public EnginePair {
 protected:
  void SetUp() override {
    tell_owners_ = false;
    open(64 << 20, "", 100'000);
    for (Side* side : {a_.get(), b_.get()}) {
      set_ring(*side, kSelfHolder, side->peer_index, 1);
    }
  }
  bool b_finds_all(Pages& pages) {
    const auto present = b_->exists(pages).present;
    return std::count(present.begin(), present.end(), 1) == static_cast<long>(pages.keys.size());
  }
  bool b_finds_any(Pages& pages) {
    const auto present = b_->exists(pages).present;
    return std::count(present.begin(), present.end(), 1) != 0;
  }
  template <typename Condition>
  static bool eventually(const Condition& condition) {
    const TimePoint end = Clock::now() + kPatience;
    while (!condition()) {
      if (Clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  }
};

TEST_F(Feed, PagesOfAFollowedNodeAreFoundWithoutAMessage) {
  Pages in("page", 20, 1000);
  in.fill();
  EXPECT_EQ(a_->set(in), std::vector(20, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
  Pages out("page", 20, 1000);
  const uint64_t asked = b_->engine.control().posted();
  EXPECT_EQ(b_->get(out), std::vector(20, PageStatus::ok));
  EXPECT_EQ(b_->engine.control().posted(), asked);
  EXPECT_EQ(out.memory, in.memory);
}

TEST_F(Feed, PagesSetBeforeFollowingAreFoundToo) {
  Pages in("page", 9000, 100);  // more than one frame holds
  in.fill();
  b_->engine.peers().drop(b_->peer_index);
  EXPECT_EQ(a_->set(in), std::vector(9000, PageStatus::ok));
  b_->peer_index = b_->engine.peers().add("a", 'a');
  b_->engine.peers().connect(b_->peer_index,
                             {"127.0.0.1", a_->engine.readers().port(), std::string(32, 't'), 'a'});
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
}

TEST_F(Feed, EvictedPagesAreSoonNotFound) {
  Pages first("first", 10, 1000);
  first.fill();
  EXPECT_EQ(a_->set(first), std::vector(10, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return b_finds_all(first); }));
  Pages more("more", 1200, 64 << 10);  // more than the pool's 64 MiB
  EXPECT_EQ(a_->set(more), std::vector(1200, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return !b_finds_any(first); }));
}

TEST_F(Feed, PagesUnderRemovalAreNotFound) {
  Pages in("page", 3, 1000);
  in.fill();
  EXPECT_EQ(a_->set(in), std::vector(3, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
  std::vector<Digest> digests;
  for (const auto& key : in.keys) {
    digests.push_back(digest_of(b_->context(1).ns->current().key, key));
  }
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin(digests, rows), Removals::Begun::kept);
  EXPECT_FALSE(b_finds_any(in)) << "a has them still, and has told so";
  b_->engine.removals().end(digests);
  EXPECT_FALSE(b_finds_any(in)) << "what a has told since is not here yet";
}

class FeedOfAStart : public Feed {
 protected:
  void SetUp() override {
    begin_serving_ = false;
    Feed::SetUp();
    b_->engine.begin_serving();
  }
};

TEST_F(FeedOfAStart, PagesAreFoundOnlyOnceTheirNodeServes) {
  Pages in("page", 3, 1000);
  in.fill();
  tell_owners_ = true;
  EXPECT_EQ(a_->set(in), std::vector(3, PageStatus::ok));
  const auto statuses = b_->get(in);
  EXPECT_EQ(std::ranges::count(statuses, PageStatus::ok), 0);
  a_->engine.begin_serving();
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
}

TEST_F(Feed, PagesOfADepartedNodeAreNeitherFoundNorRead) {
  Pages in("page", 3, 1000);
  in.fill();
  EXPECT_EQ(a_->set(in), std::vector(3, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
  a_->engine.end_serving();
  const auto statuses = b_->get(in);
  EXPECT_EQ(std::ranges::count(statuses, PageStatus::ok), 0);
  EXPECT_TRUE(eventually([&] { return !b_finds_any(in); }));
}

TEST_F(Feed, ANodeThatIsGoneHasNoCopy) {
  Pages in("page", 3, 1000);
  in.fill();
  EXPECT_EQ(a_->set(in), std::vector(3, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
  b_->engine.peers().drop(b_->peer_index);
  EXPECT_FALSE(b_finds_any(in));
}

}  // namespace
}  // namespace peercached
