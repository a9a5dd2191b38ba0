// Lookups at owners: frames answer some, and the control plane must answer the others.
#include "engine_fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kView = 3;

// `a` owns all digests except one.
class Locate : public EnginePair {
 protected:
  void SetUp() override {
    open(16 << 20);
    a_owns_all(kView);
    a_->engine.directory().finality().set(true, kView);
    a_->engine.directory().finality().keep(Deadline::after_ms(600'000).at);
    Pages in("first", 1, 1000);
    in.fill();
    EXPECT_EQ(a_->set(in), std::vector{PageStatus::ok});
  }

  // Returns how often b asks its control plane in a lookup that finds `there` pages.
  uint64_t questions_for(const std::string& label, size_t there) {
    Pages in(label, there, 1000), all(label, there + 2, 1000);
    in.fill();
    EXPECT_EQ(a_->set(in), std::vector(there, PageStatus::ok));
    const uint64_t before = b_->engine.control().posted();
    EXPECT_EQ(b_->exists(all).prefix, there);
    const uint64_t asked = b_->engine.control().posted() - before;
    Pages out(label, there, 1000);
    EXPECT_EQ(b_->get(out), std::vector(there, PageStatus::ok));
    EXPECT_EQ(out.memory, in.memory);
    return asked;
  }
};

TEST_F(Locate, FinalOwnerAnswerNeedsNoControlPlane) {
  EXPECT_EQ(questions_for("settled", 20), 0u);
  EXPECT_EQ(questions_for("absent", 0), 0u);
}

TEST_F(Locate, NonFinalOwnerAnswerAsksTheControlPlane) {
  a_->engine.directory().finality().set(false, kView);
  EXPECT_EQ(questions_for("not in sync", 20), 1u);
  a_->engine.directory().finality().set(true, kView + 1);
  EXPECT_EQ(questions_for("of another view", 20), 1u);
  a_->engine.directory().finality().set(true, kView);
  EXPECT_EQ(questions_for("in sync", 20), 0u);
  a_->engine.directory().finality().keep(Deadline::after_ms(0).at);
  EXPECT_EQ(questions_for("it stood still", 20), 1u);
}

TEST_F(Locate, ASuspectOwnerIsNotAsked) {
  Pages out("first", 1, 1000);
  b_->engine.nodes().set_suspect(b_->peer_index, true);
  const uint64_t before = b_->engine.control().posted();
  EXPECT_EQ(b_->exists(out).prefix, 0u);
  EXPECT_EQ(b_->engine.control().posted() - before, 1u);
}

TEST(Finality, CountsOnlyWithinOneTerm) {
  Finality finality;
  EXPECT_FALSE(finality.lasts(finality.term(0)));
  finality.set(true, 7);
  EXPECT_EQ(finality.term(7), 0u) << "nobody has said that it is up to date";
  finality.keep(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(finality.term(6), 0u);
  const uint64_t term = finality.term(7);
  EXPECT_TRUE(finality.lasts(term));
  finality.set(false, 7);
  EXPECT_FALSE(finality.lasts(term));
  finality.set(true, 7);
  EXPECT_FALSE(finality.lasts(term)) << "what was looked up before may be of in between";
  EXPECT_TRUE(finality.lasts(finality.term(7)));
}

}  // namespace
}  // namespace peercached
