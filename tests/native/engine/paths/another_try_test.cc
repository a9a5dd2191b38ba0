// Pages that move during a lookup: the second try asks another holder than the first.

#include "engine/engine_fixture.h"

namespace peercached {
namespace {

class AnotherTry : public EnginePair {
 protected:
  void SetUp() override {
    open(64 << 20);
    out_.fill();
    for (const std::string& key : out_.keys) {
      digests_.push_back(digest_of(b_->context(1).ns->current().key, key));
    }
  }
  void TearDown() override {
    if (setter_.joinable()) setter_.join();
    EnginePair::TearDown();
  }

  // Stale records at the owner: b has already withdrawn these pages, or is just setting them. Every
  // lookup there waits for `meanwhile`.
  void a_says_that_b_holds_them(const std::function<void()>& meanwhile = [] {}) {
    a_->engine.directory().set_own_records([this, meanwhile](std::span<const Digest> digests) {
      meanwhile();
      std::vector<RecordRow> rows;
      for (const Digest& digest : digests) {
        RecordRow row;
        row.digest = digest;
        row.generation = 1;
        row.length = out_.page_bytes;
        row.flags = kRecordResident;
        row.holder = a_->peer_index;
        rows.push_back(row);
      }
      return rows;
    });
    owns_all(*a_, kFirstView + 1);
  }
  bool b_has_them() {
    std::vector<uint8_t> present(digests_.size());
    b_->engine.storage().pool().contains(digests_, false, present);
    return std::count(present.begin(), present.end(), 1) == std::ssize(present);
  }
  void expect_b_gets_them() {
    Pages in("k", 32, 4096);
    EXPECT_EQ(b_->get(in), std::vector(32, PageStatus::ok));
    EXPECT_EQ(in.memory, out_.memory);
  }
  // Another worker's set or a drain brings the pages to b. This happens after b has searched its
  // pool and before the owner answers.
  void they_come_to_b_while_it_looks_elsewhere() {
    a_says_that_b_holds_them([this] {
      if (!setter_.joinable()) setter_ = std::thread([this] { b_->set(out_); });
      while (!b_has_them()) std::this_thread::yield();
    });
  }

  Pages out_{"k", 32, 4096};
  std::vector<Digest> digests_;
  std::thread setter_;
};

TEST_F(AnotherTry, GetFallsBackFromAStaleHolderToAnother) {
  a_->set(out_);
  // The records name a second holder: a's server under another index, without such slots.
  const HolderIndex ghost = b_->engine.peers().add("ghost", 'a');
  b_->engine.transports().engine().add_peer(ghost, endpoint_of(*a_));
  b_->engine.nodes().set_connected(ghost, true);
  std::vector<RecordRow> rows = a_->engine.local_pages().rows(digests_);
  ASSERT_EQ(rows.size(), digests_.size());
  for (RecordRow& row : rows) row.generation += 1'000'000;
  b_->hears(ghost, rows);
  expect_b_gets_them();
}

TEST_F(AnotherTry, AHolderIsAskedForItsDiskIfTheOwnersHaveNotHeardOfAnEviction) {
  a_->set(out_);
  // An owner names the page by a record from before its eviction.
  const HolderIndex itself = a_->engine.peers().add("itself", 'a');
  a_->hears(itself, a_->engine.local_pages().rows(digests_));
  std::vector<RecordRow> rows;
  a_->engine.storage().pool().remove(digests_, rows);
  promoted_ = [this] {
    a_->set(out_);
    return a_->engine.local_pages().rows(digests_);
  };
  expect_b_gets_them();
}

TEST_F(AnotherTry, UnconnectedHolderIsPassedOverForAConnectedOne) {
  a_->set(out_);
  const HolderIndex newcomer = b_->engine.peers().add("newcomer", 1);
  b_->hears(newcomer, a_->engine.local_pages().rows(digests_));
  expect_b_gets_them();
}

TEST_F(AnotherTry, GetFindsAPageThatReachesTheOwnPoolMeanwhile) {
  they_come_to_b_while_it_looks_elsewhere();
  expect_b_gets_them();
}

TEST_F(AnotherTry, ExistsFindsAPageThatReachesTheOwnPoolMeanwhile) {
  they_come_to_b_while_it_looks_elsewhere();
  EXPECT_EQ(b_->exists(out_).prefix, 32u);
}

TEST_F(AnotherTry, OwnRecordWithoutThePageIsNoHit) {
  a_says_that_b_holds_them();
  EXPECT_EQ(b_->exists(out_).prefix, 0u);
  for (PageStatus status : b_->get(out_)) EXPECT_NE(status, PageStatus::ok);
}

}  // namespace
}  // namespace peercached
