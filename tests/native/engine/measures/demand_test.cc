// The pages that workers looked for, and the places where they were found.

#include "engine/measures/demand.h"

#include "engine/engine_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kPageBytes = 64 << 10;

class DemandTest : public EnginePair {
 protected:
  static const Demand& demand(Side& side) { return side.context(0).ns->demand(); }
  static uint64_t found(Side& side, Source source) {
    return demand(side).found(static_cast<size_t>(source));
  }
  static void ask(Side& side, const std::vector<std::string>& keys, bool all,
                  PageTokens page = {}) {
    std::vector<PageRef> refs(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) refs[i].key = keys[i];
    RequestContext context = side.context(kPatienceMs);
    context.page = page;
    side.engine.exists(context, refs, all);
  }
};

TEST_F(DemandTest, ExistsCountsKeysBeforeTheFirstMissingOneByPlace) {
  open(4 << 20);
  Pages pages = a_->stored("here", 4, kPageBytes);
  ask(*a_, {"here0", "here1", "nowhere", "here2"}, false, {64, 2});
  EXPECT_EQ(demand(*a_).asked(), 4u);
  EXPECT_EQ(found(*a_, Source::pool), 2u);
  EXPECT_EQ(demand(*a_).tokens_asked(), 128u);
  EXPECT_EQ(demand(*a_).tokens_found(), 64u);
  ask(*b_, {"here0", "here1", "here2", "nowhere"}, false);
  EXPECT_EQ(found(*b_, Source::peer), 3u);
  EXPECT_EQ(found(*b_, Source::pool), 0u);
  EXPECT_EQ(demand(*b_).tokens_asked(), 0u);
}

TEST_F(DemandTest, EachKeyCountsByItselfIfAllAreAskedFor) {
  open(4 << 20);
  Pages pages = a_->stored("here", 2, kPageBytes);
  ask(*a_, {"nowhere", "here0", "here1"}, true);
  EXPECT_EQ(demand(*a_).asked(), 3u);
  EXPECT_EQ(found(*a_, Source::pool), 2u);
}

TEST_F(DemandTest, InvalidKeysAreNotLookedFor) {
  open(4 << 20);
  RequestContext context = b_->context(kPatienceMs);
  context.gets_only = true;
  std::vector<PageRef> refs(3);
  for (PageRef& ref : refs) ref.key = "nowhere";
  refs[1].status = PageStatus::bad_key;
  b_->engine.exists(context, refs, true);
  EXPECT_EQ(demand(*b_).asked(), 2u);
  for (PageRef& ref : refs) ref.status = PageStatus::bad_key;
  b_->engine.get(context, refs);
  EXPECT_EQ(demand(*b_).asked(), 2u);
}

TEST_F(DemandTest, GetsCountOnlyForWorkersThatNeverCallExists) {
  open(4 << 20);
  Pages pages = a_->stored("here", 2, kPageBytes), others("nowhere", 3, kPageBytes);
  a_->get(pages);
  EXPECT_EQ(demand(*a_).asked(), 0u);
  for (Pages* some : {&pages, &others}) {
    auto refs = some->refs();
    RequestContext context = b_->context(kPatienceMs);
    context.gets_only = true;
    b_->engine.get(context, refs);
  }
  EXPECT_EQ(demand(*b_).asked(), 5u);
  EXPECT_EQ(found(*b_, Source::peer), 2u);
}

TEST_F(DemandTest, EvictedKeysTellWhatALargerPoolWouldHaveFound) {
  open(1 << 20);
  // Three pools full. One of them stays.
  Pages pages("turn", 48, kPageBytes);
  pages.fill();
  for (size_t i = 0; i < pages.keys.size(); ++i) {
    auto refs = pages.refs();
    a_->engine.set(a_->context(kPatienceMs), std::span(refs).subspan(i, 1));
    ASSERT_EQ(refs[i].status, PageStatus::ok);
  }
  ask(*a_, {pages.keys[2], pages.keys[3], "nowhere", pages.keys[4]}, false);
  EXPECT_EQ(demand(*a_).evicted(1), 2u) << "four times the pool";
  EXPECT_EQ(demand(*a_).evicted(0), 0u) << "twice the pool";
  ask(*a_, {pages.keys[30]}, false);
  EXPECT_EQ(demand(*a_).evicted(0), 1u);
  EXPECT_EQ(demand(*a_).evicted(1), 3u);
}

}  // namespace
}  // namespace peercached
