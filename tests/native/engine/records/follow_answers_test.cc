// Answers to a follower: a scan in parts, while pages come and go.
#include "engine/records/follow_answers.h"

#include "engine/storage/disk_pages_fixture.h"

namespace peercached {
namespace {

class FollowAnswersTest : public DiskPagesFixture {
 protected:
  using Next = tcp::FollowSource::Answer::Next;
  static constexpr Incarnation kAsker = 'f';
  static constexpr HolderIndex kHolder = 1;  // in the follower's table

  void SetUp() override {
    open(64 << 20);
    feed_.set_view(1, {});
    feed_.open();
    answers_.emplace(FollowAnswers::Parts{feed_, signs_, *disk_, directory_});
  }
  // Puts what the pages have told so far into the log.
  void log() {
    std::lock_guard lock(told_mutex_);
    feed_.append(told_);
    told_.clear();
  }
  // One question. Calls between() after each part of a scan; false: there is no answer.
  bool ask(const std::function<void()>& between = [] {}) {
    const FeedQuestion question = table_.ask(kHolder, Clock::now());
    const auto answer = answers_->ask(kAsker, {}, question);
    if (!answer) return false;
    tcp::Followed part;
    while (true) {
      part = {};
      if (answer->next(false, part) != Next::part) return false;
      EXPECT_LE(part.rows.size(), tcp::kRowsPerFollowedMax);
      EXPECT_EQ(table_.take(kHolder, part), RecordTable::Taken::ok);
      if (!part.more) break;
      ++parts_;
      between();
      log();
    }
    has_lease_ = part.lease_view != 0;
    return true;
  }
  // The follower's record of the page, as DiskPagesFixture::record().
  char followed(const Digest& digest) {
    std::vector<RecordRow> rows;
    table_.find({&digest, 1}, rows);
    return rows.empty() ? '-' : rows[0].flags & kRecordResident ? 'r' : 'n';
  }
  void follow(const std::function<void()>& between = [] {}) {
    for (has_lease_ = false; !has_lease_;) ASSERT_TRUE(ask(between));
  }

  RecordFeed feed_{1 << 16, [] {}};
  tcp::LifeSigns signs_;
  NodeTable nodes_{"self", 's'};
  Running running_;
  OperationCounters counters_;
  Directory directory_{1000, {}, nodes_, running_, counters_};
  std::optional<FollowAnswers> answers_;
  RecordTable table_{20'000, [] {}};
  unsigned parts_ = 0;  // of scans
  bool has_lease_ = false;
};

TEST_F(FollowAnswersTest, AScanAndTheChangesMeanwhileGiveAllThatIsThereAtTheEnd) {
  constexpr uint64_t kPages = 3500;
  for (uint64_t n = 0; n < kPages; ++n) ASSERT_TRUE(set(digest_of_page(n)));
  while (tier_->stats().queued_pages > 0) std::this_thread::yield();
  for (uint64_t n = 0; n < kPages; n += 5) evict(digest_of_page(n));  // to the disk
  log();
  std::mt19937_64 random(1);
  follow([&] {
    for (int i = 0; i < 500; ++i) {
      const Digest digest = digest_of_page(random() % (kPages + 500));
      const auto change = random() % 4;
      if (change == 0) remove(digest);
      if (change == 1) evict(digest);
      if (change == 2) promote(digest);
      if (change == 3) set(digest);
    }
    // The writes to the disk end on threads of their own.
    while (tier_->stats().queued_pages > 0 || pool_->stats().pins > 0) std::this_thread::yield();
  });
  EXPECT_GE(parts_, 3u) << "no part has all of the pool";
  unsigned of_kind[256] = {};
  for (uint64_t n = 0; n < kPages + 500; ++n) {
    const char kind = record(digest_of_page(n));
    ++of_kind[static_cast<unsigned char>(kind)];
    ASSERT_EQ(followed(digest_of_page(n)), kind) << n;
  }
  EXPECT_GT(std::min({of_kind['-'], of_kind['n'], of_kind['r']}), 100u);
}

TEST_F(FollowAnswersTest, AnEmptyPoolIsAScanToo) {
  follow();
  EXPECT_EQ(table_.holders(), std::vector{kHolder});
}

TEST_F(FollowAnswersTest, AScanTellsAnOwnerOnlyWhatItOwns) {
  const HolderIndex index = nodes_.add("f", kAsker);
  // Each owns about half of the digests of these pages.
  const auto ring = std::make_shared<const Ring>(std::vector<uint64_t>{0x5540, 1ull << 63},
                                                 std::vector{kSelfHolder, index}, 1, 1);
  directory_.set_ring(ring);
  const uint64_t print = ring->print([&](HolderIndex node) { return nodes_.incarnation(node); });
  unsigned owned = 0, told = 0;
  for (uint64_t n = 0; n < 100; ++n) {
    ASSERT_TRUE(set(digest_of_page(n)));
    owned += ring->owned_by(digest_of_page(n), index);
  }
  const auto answer = answers_->ask(kAsker, {}, {.number = 1, .ring = print});
  tcp::Followed part{{.more = true}, {}};
  while (part.more) {
    ASSERT_EQ(answer->next(false, part), Next::part);
    for (const RecordRow& row : part.rows) told += ring->owned_by(row.digest, index);
    EXPECT_LE(part.rows.size(), owned);
  }
  EXPECT_EQ(told, owned);
  EXPECT_TRUE(0 < owned && owned < 100) << owned;
}

TEST_F(FollowAnswersTest, NoAnswerToAnOutdatedQuestionOrOnceTheFeedIsClosed) {
  const FeedQuestion question{.number = 5};
  EXPECT_NE(answers_->ask(kAsker, {}, question), nullptr);
  EXPECT_EQ(answers_->ask(kAsker, {}, question), nullptr);
  const auto answer = answers_->ask(kAsker, {}, {.number = 6});
  feed_.close();
  tcp::Followed part;
  EXPECT_EQ(answer->next(true, part), Next::none);
}

}  // namespace
}  // namespace peercached
