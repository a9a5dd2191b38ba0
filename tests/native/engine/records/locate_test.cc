// Lookups at owners: a final answer is enough, and after any other one all who may know are asked.
#include "engine/engine_fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kView = 3;

// `a` owns all digests except one.
class Locate : public EnginePair {
 protected:
  void SetUp() override {
    open(16 << 20);
    owns_all(*a_, kView);
  }

  void set_at_a(const std::string& label, size_t count) {
    Pages in(label, count, 1000);
    in.fill();
    EXPECT_EQ(a_->set(in), std::vector(count, PageStatus::ok));
  }
  // Looks `there` pages up from b, and some that are nowhere. Returns how often b had to ask more
  // than the owners that it asks first.
  uint64_t passed_on(const std::string& label, size_t there) {
    set_at_a(label, there);
    Pages all(label, there + 2, 1000), out(label, there, 1000), in(label, there, 1000);
    const uint64_t before = b_->counter("lookups_passed_on");
    EXPECT_EQ(b_->exists(all).prefix, there);
    const uint64_t more = b_->counter("lookups_passed_on") - before;
    EXPECT_EQ(b_->get(out), std::vector(there, PageStatus::ok));
    in.fill();
    EXPECT_EQ(out.memory, in.memory);
    return more;
  }
};

TEST_F(Locate, FinalAnswerIsEnough) {
  EXPECT_EQ(passed_on("settled", 20), 0u);
  EXPECT_EQ(passed_on("absent", 0), 0u);
  owns_all(*b_, kView + 1);
  const uint64_t before = b_->counter("lookups_asked");
  EXPECT_EQ(passed_on("known here", 20), 0u);
  EXPECT_EQ(b_->counter("lookups_asked"), before) << "our own table needs no message";
}

TEST_F(Locate, OwnerInAnotherViewOrWithoutALeaseOfEachMemberIsNotFinal) {
  set_ring(*a_, kSelfHolder, a_->peer_index, kView + 1);
  EXPECT_EQ(passed_on("of another view", 20), 1u);
  set_ring(*b_, b_->peer_index, kSelfHolder, kView + 1);
  all_know(kView + 1);
  EXPECT_EQ(passed_on("of the same view", 20), 0u);
  forget_peer(*a_);
  EXPECT_EQ(passed_on("no lease", 20), 1u);
}

TEST_F(Locate, ASuspectOwnerIsNotAskedAndASlowOneIfNobodyElseKnows) {
  b_->engine.nodes().set_suspect(b_->peer_index, true);
  set_at_a("page", 20);
  Pages out("page", 20, 1000);
  const uint64_t frames = b_->counter("lookup_frames");
  EXPECT_EQ(b_->exists(out).prefix, 0u);
  EXPECT_EQ(b_->counter("lookup_frames"), frames);
  b_->engine.nodes().set_suspect(b_->peer_index, false);
  b_->engine.nodes().set_slow(b_->peer_index, TimePoint::max());
  follow_no_more(*b_);
  const uint64_t before = b_->counter("lookups_passed_on");
  EXPECT_EQ(b_->exists(out).prefix, 20u);
  EXPECT_EQ(b_->counter("lookups_passed_on") - before, 1u);
}

TEST_F(Locate, OwnersOfTheRingBeforeAreAskedWhileTheNewOnesDoNotKnowAll) {
  set_at_a("page", 20);
  Pages out("page", 20, 1000);
  set_ring(*b_, kSelfHolder, b_->peer_index, kView + 1);  // a has not heard of this view
  follow_no_more(*b_);
  EXPECT_EQ(b_->exists(out).prefix, 20u);
  EXPECT_EQ(b_->get(out), std::vector(20, PageStatus::ok));
}

TEST_F(Locate, KeysThatAreNamedAgainAreFoundEachTime) {
  set_at_a("page", 3);
  for (const bool in_our_table : {false, true}) {
    if (in_our_table) owns_all(*b_, kView + 1);
    Pages all("page", 0, 1000);
    all.keys = {"page0", "page0", "page1", "page0", "nowhere", "page0", "page1", "page2"};
    all.memory.resize(8 * 1000);
    EXPECT_EQ(b_->exists(all).present, (std::vector<uint8_t>{1, 1, 1, 1, 0, 1, 1, 1}))
        << in_our_table;
  }
}

}  // namespace
}  // namespace peercached
