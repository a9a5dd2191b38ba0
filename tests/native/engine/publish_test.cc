// Records at owners: what is told in frames, and what the control plane is asked to tell.
#include "engine_fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kFirstView = 3;

// `a` owns all digests but one; pages are set at `b`.
class Publish : public EnginePair {
 protected:
  void SetUp() override {
    open(16 << 20);
    set_rings(kFirstView);
    b_->engine.open_owner(b_->peer_index, true);
  }
  void set_rings(uint64_t view_number) {
    set_ring(*a_, kSelfHolder, a_->peer_index, view_number);
    set_ring(*b_, b_->peer_index, kSelfHolder, view_number);
  }
  static void set_ring(Side& side, HolderIndex owner, HolderIndex other, uint64_t view_number) {
    constexpr uint64_t kPlace = 1ull << 62;
    side.engine.set_ring(std::make_shared<const Ring>(std::vector<uint64_t>{kPlace, kPlace + 1},
                                                      std::vector<HolderIndex>{owner, other}, 1,
                                                      view_number));
  }

  // How often the control plane is asked while pages are set, which are found in any case.
  uint64_t questions_for(const std::string& label, size_t count = 20) {
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
  std::vector<RecordRow> rows_of(uint64_t generation) const {
    RecordRow row{.digest = {5, 6}, .offset = 4096, .generation = generation, .length = 100};
    row.flags = kRecordResident;
    return {row};
  }
  bool a_knows_it() {
    std::vector<RecordRow> found;
    const Digest digest{5, 6};
    a_->engine.shard().lookup({&digest, 1}, found);
    return !found.empty();
  }
};

TEST_F(Publish, WhatAllOwnersTakeTheControlPlaneIsNotAskedToTell) {
  EXPECT_EQ(questions_for("first"), 0u);
  EXPECT_EQ(questions_for("more", 3000), 0u);
}

TEST_F(Publish, AnOwnerThatIsNotOpenTheControlPlaneTells) {
  b_->engine.open_owner(b_->peer_index, false);
  EXPECT_EQ(questions_for("closed"), 1u);
  b_->engine.open_owner(b_->peer_index, true);
  EXPECT_EQ(questions_for("open"), 0u);
  set_rings(kFirstView + 1);
  EXPECT_EQ(questions_for("a new ring closes all"), 1u);
}

TEST_F(Publish, ASuspectOwnerTheControlPlaneTells) {
  b_->engine.suspect_node(b_->peer_index, true);
  EXPECT_EQ(questions_for("suspect"), 1u);
}

TEST_F(Publish, AnOwnerThatTakesNoFrameOfThisLineTheControlPlaneTells) {
  a_->engine.close_lines_before(a_->peer_index, b_->engine.line() + 1);
  EXPECT_EQ(questions_for("closed line"), 1u);
  EXPECT_EQ(b_->engine.line(), 1u) << "it has answered: nothing comes late";
}

TEST_F(Publish, AFrameThatComesLateIsNotTaken) {
  const Incarnation b = 'b';
  EXPECT_TRUE(a_->engine.publish_local(b, 1, rows_of(1)));
  EXPECT_TRUE(a_knows_it());
  auto withdrawal = rows_of(2);
  withdrawal[0].flags = kRecordWithdraw;
  a_->engine.close_lines_before(a_->peer_index, 2);
  a_->engine.shard().apply(a_->peer_index, withdrawal);
  EXPECT_FALSE(a_->engine.publish_local(b, 1, rows_of(1)));
  EXPECT_FALSE(a_knows_it());
  a_->engine.close_lines_before(a_->peer_index, 1);
  EXPECT_FALSE(a_->engine.publish_local(b, 1, rows_of(1))) << "closed lines stay closed";
  EXPECT_TRUE(a_->engine.publish_local(b, 2, rows_of(3)));
}

TEST_F(Publish, NothingIsTakenOfAStrangerOrOfWhatCannotBe) {
  EXPECT_FALSE(a_->engine.publish_local('c', 1, rows_of(1)));
  auto odd = rows_of(1);
  odd[0].offset = 1;
  EXPECT_FALSE(a_->engine.publish_local('b', 1, odd));
  EXPECT_FALSE(a_knows_it());
  a_->engine.drop_node(a_->peer_index);
  EXPECT_FALSE(a_->engine.publish_local('b', 1, rows_of(1)));
}

TEST(UnderWay, WaitsForWhatHadBegunAndForNothingElse) {
  UnderWay works;
  works.wait();
  auto first = std::make_unique<UnderWay::Work>(works);
  std::atomic<bool> waited{false};
  std::thread waiting([&] {
    works.wait();
    waited = true;
  });
  // The waiter has turned the side when a work that begins now does not keep it.
  std::unique_ptr<UnderWay::Work> later;
  for (int i = 0; i < 1000; ++i) {
    later = std::make_unique<UnderWay::Work>(works);
    std::this_thread::yield();
  }
  EXPECT_FALSE(waited);
  first.reset();
  // One that began before the waiter did may be among them.
  later.reset();
  waiting.join();
  EXPECT_TRUE(waited);
}

}  // namespace
}  // namespace peercached
