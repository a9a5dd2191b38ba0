// Pages of the object store: a get finds them when no node has them, and none that was removed.

#include "common/copy.h"
#include "engine/engine_fixture.h"
#include "engine/storage/page_seal.h"

namespace peercached {
namespace {

constexpr uint32_t kLength = 70'000;

class GetStore : public EnginePair {
 protected:
  void SetUp() override {
    fetched_ = [this](std::span<const Digest> asked) {
      asked_ += asked.size();
      if (asked.empty()) vouch();
      for (const Digest& digest : asked) {
        for (size_t i = 0; i < landed_.size(); ++i)
          if (landed_[i].digest == digest) land(i);
      }
    };
    open(64 << 20);
    stored_.fill();
    const auto ns = a_->engine.open_namespace("ns", 0);
    part_.namespace_id = ns->id();
    part_.valid_until = Clock::now() + std::chrono::hours(1);
    std::vector<ObjectEntry> entries;
    for (size_t i = 0; i < stored_.keys.size(); ++i) {
      std::byte* payload = stored_.memory.data() + i * kLength;
      const Digest digest = digest_of(ns->current().key, stored_.keys[i]);
      const uint64_t sum = checksum(payload, kLength);
      entries.push_back({digest, sum, static_cast<uint32_t>(i * kLength), kLength});
      RecordRow row;
      row.digest = digest;
      row.length = kLength;
      part_.rows.push_back(row);
      ReadOp op;
      op.digest = digest;
      op.length = kLength;
      op.dest = payload;
      op.header.checksum = sum;
      op.header.born = 3;
      landed_.push_back(op);
    }
    index().add({{1, 2}, part_.namespace_id, 0}, entries);
  }
  ObjectIndex& index() { return a_->engine.storage().objects(); }
  void land(size_t i) {
    Handover part = part_;
    part.rows = {part_.rows[i]};
    last_ = a_->engine.adopter().land(part, std::span(landed_).subspan(i, 1),
                                      Deadline::after_ms(kPatienceMs), seal_.get());
  }
  // The object has sealed pages from now on.
  void seal_pages() {
    seal_ = std::make_unique<PageSeal>(std::vector<std::byte>(40, std::byte{7}));
    constexpr size_t kSealed = kLength + PageSeal::kBytes;
    sealed_.resize(3 * kSealed);
    for (size_t i = 0; i < 3; ++i) {
      ReadOp& op = landed_[i];
      op.offset = i * kSealed;
      const ObjectEntry entry{op.digest, op.header.checksum, static_cast<uint32_t>(op.offset),
                              kLength};
      std::byte* to = sealed_.data() + op.offset;
      seal_->seal(entry, op.dest, to);
      op.dest = to;
    }
  }
  void vouch() {
    if (vouches_) index().vouch_until(Clock::now() + std::chrono::hours(1));
  }
  std::vector<PageStatus> got() {
    Pages in("k", 3, kLength);
    const std::vector<PageStatus> statuses = a_->get(in);
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (statuses[i] != PageStatus::ok) continue;
      const auto at = static_cast<ptrdiff_t>(i * kLength);
      EXPECT_TRUE(std::equal(in.memory.begin() + at, in.memory.begin() + at + kLength,
                             original_.memory.begin() + at));
    }
    return statuses;
  }
  static std::vector<PageStatus> all(PageStatus status) { return {3, status}; }

  Pages stored_{"k", 3, kLength}, original_ = [] {
    Pages pages("k", 3, kLength);
    pages.fill();
    return pages;
  }();
  Handover part_;
  std::vector<ReadOp> landed_;
  std::atomic<size_t> asked_{0};
  std::atomic<bool> vouches_{true};
  Adopted last_;
  std::unique_ptr<PageSeal> seal_;
  std::vector<std::byte> sealed_;
};

TEST_F(GetStore, PageComesIntoThePoolAndIsPublished) {
  index().raise_generation(9);
  EXPECT_EQ(got(), all(PageStatus::ok));
  PinnedPage page;
  Pool& pool = a_->engine.storage().pool();
  pool.pin(std::span(&landed_[0].digest, 1), nullptr, false, {&page, 1});
  ASSERT_TRUE(page);
  EXPECT_EQ(page.born_of(), 3u) << "its generation is that of the object";
  pool.unpin({&page, 1});
  EXPECT_EQ(a_->counter("get_store"), 3u);
  EXPECT_EQ(got(), all(PageStatus::ok));
  EXPECT_EQ(asked_, 3u) << "they are in the pool now";
  Pages in("k", 3, kLength);
  EXPECT_TRUE(eventually([&] { return b_->get(in) == all(PageStatus::ok); }))
      << "a peer finds them there";
}

TEST_F(GetStore, PageIsNotCommittedAfterItsTime) {
  part_.valid_until = Clock::now();
  EXPECT_EQ(got(), all(PageStatus::absent));
}

TEST_F(GetStore, PageThatIsBeingRemovedIsNotCommitted) {
  std::vector<RecordRow> rows;
  a_->engine.removals().begin(std::span(&landed_[1].digest, 1), 1, rows);
  EXPECT_EQ(got(), (std::vector{PageStatus::ok, PageStatus::absent, PageStatus::ok}));
  a_->engine.removals().end(std::span(&landed_[1].digest, 1));
}

TEST_F(GetStore, DamagedPageIsNotCommittedAndNamed) {
  stored_.memory[2 * kLength + 5] ^= std::byte{1};
  EXPECT_EQ(got(), (std::vector{PageStatus::ok, PageStatus::ok, PageStatus::absent}));
  EXPECT_EQ(last_.corrupt, (std::vector{landed_[2].digest}));
}

TEST_F(GetStore, SealedPageIsOpenedAndABrokenSealIsDamage) {
  seal_pages();
  sealed_.back() ^= std::byte{1};  // of the tag: the bytes would fit their checksum
  EXPECT_EQ(got(), (std::vector{PageStatus::ok, PageStatus::ok, PageStatus::absent}));
  EXPECT_EQ(last_.corrupt, (std::vector{landed_[2].digest}));
}

TEST_F(GetStore, ExistsCountsPagesOnlyWhileTheIndexIsVouchedFor) {
  vouches_ = false;
  Pages asked("k", 3, kLength);
  EXPECT_EQ(a_->exists(asked).prefix, 0u);
  vouches_ = true;
  EXPECT_EQ(a_->exists(asked).prefix, 3u);
  index().drop(std::span(&landed_[1].digest, 1));
  EXPECT_TRUE(eventually([&] { return asked_ == 3; })) << "they are brought to the pool";
}

TEST_F(GetStore, NodeThatServesNothingAsksForNothing) {
  a_->engine.set_paused(true);
  EXPECT_EQ(got(), all(PageStatus::absent));
  EXPECT_EQ(asked_, 0u);
  land(0);  // asked for before that
  EXPECT_TRUE(last_.taken.empty());
  a_->engine.set_paused(false);
  land(0);
  EXPECT_EQ(last_.taken.size(), 1u);
}

}  // namespace
}  // namespace peercached
