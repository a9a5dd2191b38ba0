// Lookups that other nodes' records here may answer, and lookups that they may not.
#include "engine/engine_fixture.h"

namespace peercached {
namespace {

// Each side believes that it owns all digests, so `b` asks nobody. It can find a's pages only in
// its table of a's records.
class FollowedRecords : public EnginePair {
 protected:
  void SetUp() override { open(64 << 20); }
  void set_first_ring(Side& side) override {
    set_ring(side, kSelfHolder, side.peer_index, kFirstView);
  }
  bool b_finds_all(Pages& pages) {
    const auto present = b_->exists(pages).present;
    return std::count(present.begin(), present.end(), 1) == static_cast<long>(pages.keys.size());
  }
  // Pages that are set at `a`, and found at `b`.
  Pages found(size_t count) {
    Pages pages = stored(count);
    EXPECT_TRUE(eventually([&] { return b_finds_all(pages); }));
    return pages;
  }
  Pages stored(size_t count, uint32_t bytes = 1000) {
    Pages pages("page", count, bytes);
    pages.fill();
    EXPECT_EQ(a_->set(pages), std::vector(count, PageStatus::ok));
    return pages;
  }
  bool b_finds_any(Pages& pages) {
    const auto present = b_->exists(pages).present;
    return std::count(present.begin(), present.end(), 1) != 0;
  }
};

TEST_F(FollowedRecords, PagesOfAFollowedNodeAreFoundWithoutAMessage) {
  Pages in = found(20);
  Pages out("page", 20, 1000);
  EXPECT_EQ(b_->get(out), std::vector(20, PageStatus::ok));
  EXPECT_EQ(b_->counter("lookups_asked"), 0u);
  EXPECT_EQ(out.memory, in.memory);
}

TEST_F(FollowedRecords, PagesSetBeforeFollowingAreFoundToo) {
  b_->engine.peers().drop(b_->peer_index);
  Pages in = stored(9000, 100);  // more than one frame holds
  b_->peer_index = b_->engine.peers().add("a", 'a');
  connect(*b_);
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
}

TEST_F(FollowedRecords, EvictedPagesAreSoonNotFound) {
  Pages first = found(10);
  Pages more("more", 1200, 64 << 10);  // more than the pool's 64 MiB
  EXPECT_EQ(a_->set(more), std::vector(1200, PageStatus::ok));
  EXPECT_TRUE(eventually([&] { return !b_finds_any(first); }));
}

TEST_F(FollowedRecords, PagesUnderRemovalAreNotFound) {
  Pages in = found(3);
  std::vector<Digest> digests;
  for (const auto& key : in.keys) {
    digests.push_back(digest_of(b_->context(1).ns->current().key, key));
  }
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin(digests, 1, rows), Removals::Begun::in_journal);
  EXPECT_FALSE(b_finds_any(in)) << "a has them still, and has told so";
  ASSERT_EQ(a_->engine.removals().begin(digests, 1, rows), Removals::Begun::in_journal);
  RecordFeed& feed = a_->engine.publisher().feed();
  const uint64_t position = feed.tell_now(digests);
  EXPECT_TRUE(eventually([&] { return feed.behind(position).empty(); }));
  for (Side* side : {a_.get(), b_.get()}) side->engine.removals().end(digests);
  EXPECT_FALSE(b_finds_any(in));
}

class FeedOfAStart : public FollowedRecords {
 protected:
  void SetUp() override {
    begin_serving_ = false;
    FollowedRecords::SetUp();
    b_->engine.begin_serving();
    a_->engine.publisher().set_patience(std::chrono::milliseconds(10));  // it is followed later
  }
};

TEST_F(FeedOfAStart, PagesAreFoundOnlyOnceTheirNodeServes) {
  Pages in = stored(3);
  const auto statuses = b_->get(in);
  EXPECT_EQ(std::ranges::count(statuses, PageStatus::ok), 0);
  a_->engine.begin_serving();
  EXPECT_TRUE(eventually([&] { return b_finds_all(in); }));
}

TEST_F(FollowedRecords, PagesOfADepartedNodeAreNeitherFoundNorRead) {
  Pages in = found(3);
  a_->engine.end_serving();
  const auto statuses = b_->get(in);
  EXPECT_EQ(std::ranges::count(statuses, PageStatus::ok), 0);
  EXPECT_TRUE(eventually([&] { return !b_finds_any(in); }));
}

TEST_F(FollowedRecords, ANodeThatIsGoneHasNoRecords) {
  Pages in = found(3);
  b_->engine.peers().drop(b_->peer_index);
  EXPECT_FALSE(b_finds_any(in));
}

TEST_F(FollowedRecords, APageWhoseRemovalIsUnderWayIsNotFoundAnywhere) {
  Pages page = stored(1);
  owns_all(*a_, kFirstView + 1);
  const Digest digest = digest_of(b_->context(1).ns->current().key, page.keys[0]);
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin({&digest, 1}, 1, rows), Removals::Begun::in_journal);
  // `a` has not heard of the removal yet, and answers as the owner.
  EXPECT_EQ(b_->get(page), std::vector(1, PageStatus::absent));
  b_->engine.removals().end({&digest, 1});
  RecordRow cached;
  EXPECT_FALSE(b_->engine.locations().find(digest, TimePoint::min(), cached));
}

}  // namespace
}  // namespace peercached
