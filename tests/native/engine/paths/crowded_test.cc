// Many nodes read from one holder: it is read in slices, and what comes is kept for the others.

#include <algorithm>

#include "common/copy.h"
#include "engine/engine_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kSmallPage = 16 << 10;
constexpr size_t kManyPages = 400;  // enough for slices
constexpr uint64_t kReplicasMax = 16 << 20;

class Crowded : public EnginePair {
 protected:
  // The pages of `out` are at a. `faults`: of the transfers.
  void hold(Pages& out, const std::string& faults = "") {
    open(64 << 20, faults);
    b_->engine.adopter().set_replicas_max(kReplicasMax);
    out.fill();
    a_->set(out);
  }
  void a_owes(bool owes) { b_->engine.nodes().set_owes(b_->peer_index, owes); }
  // From now on any READ takes longer than usual, by what b knows of another node.
  void all_is_slow() {
    constexpr HolderIndex kAnother = 7;
    HolderSpeeds& speeds = b_->engine.speeds();
    for (uint64_t bytes = 1; bytes < 1 << 24; bytes *= 2) {
      for (int i = 0; i < 300; ++i)
        speeds.note(kAnother, bytes, std::chrono::nanoseconds(10), Clock::now());
    }
    while (speeds.quick(b_->peer_index, Clock::now())) std::this_thread::yield();
  }
  static long times(const Trace& trace, const std::string& step) {
    return std::ranges::count_if(trace.steps, [&](const auto& one) { return one.name == step; });
  }
  size_t replicas() { return b_->engine.storage().pool().replicas().keys; }

  // As if a worker at b had just read the pages from a.
  struct Landed {
    Handover part;
    std::vector<ReadOp> ops;
  };
  Landed landed(Pages& in) {
    Landed made{a_->engine.offers().warmest(1 << 30).parts.at(0), {}};
    made.part.learnt_at = b_->engine.adopter().removal_changes();
    EXPECT_EQ(b_->get(in), std::vector(in.keys.size(), PageStatus::ok));
    const auto ns = a_->engine.open_namespace("ns", 0)->current();
    for (const RecordRow& row : made.part.rows) {
      size_t i = 0;
      while (digest_of(ns.key, in.keys[i]) != row.digest) ++i;
      ReadOp& op = made.ops.emplace_back();
      op.digest = row.digest;
      op.length = row.length;
      op.dest = in.memory.data() + i * in.page_bytes;
      op.status = PageStatus::ok;
      op.header.checksum = checksum(op.dest, row.length);
    }
    return made;
  }
  void keep(const Landed& pages) {
    const RequestContext context = b_->context(kPatienceMs);
    b_->engine.adopter().commit_landed(b_->peer_index, pages.part, pages.ops, *context.gate,
                                       context.deadline);
  }
};

TEST_F(Crowded, PagesThatComeInSlicesAreKeptAndGivenToOthers) {
  Pages out("k", kManyPages, kSmallPage);
  hold(out, "seed=3,delay=1");
  all_is_slow();
  Pages in("k", kManyPages, kSmallPage);
  Trace trace;
  RequestContext context = b_->context(kPatienceMs);
  context.trace = &trace;
  auto refs = in.refs();
  b_->engine.get(context, refs);
  EXPECT_EQ(in.memory, out.memory);
  EXPECT_EQ(replicas(), kManyPages);
  EXPECT_GE(times(trace, "read"), 8) << "in slices";
  EXPECT_EQ(times(trace, "keep"), times(trace, "read"));
  EXPECT_EQ(b_->engine.storage().pool().stats().pins, 0u) << "replicas can be evicted";
  Pages at_a("k", kManyPages, kSmallPage);
  a_->remove(out);  // only there, so a reads from b
  EXPECT_TRUE(eventually([&] { return a_->records().stats().records == kManyPages; }));
  EXPECT_EQ(a_->get(at_a), std::vector(kManyPages, PageStatus::ok));
  EXPECT_EQ(at_a.memory, out.memory);
}

TEST_F(Crowded, PagesThatTheOwnersForgotAreReadByTheirOldRecords) {
  Pages out("k", kManyPages, kSmallPage);
  hold(out, "seed=3,delay=1");
  Pages in("k", kManyPages, kSmallPage);
  EXPECT_EQ(b_->get(in), std::vector(kManyPages, PageStatus::ok));  // b has their locations now
  owns_all(*b_, kFirstView + 1);
  all_is_slow();
  std::ranges::fill(in.memory, std::byte{0});
  follow_no_more(*b_);
  EXPECT_EQ(b_->get(in), std::vector(kManyPages, PageStatus::ok));
  EXPECT_EQ(in.memory, out.memory);
}

TEST_F(Crowded, NothingIsKeptOfAHolderThatIsAsQuickAsUsual) {
  Pages out("k", kManyPages, kSmallPage);
  hold(out);
  Pages in("k", kManyPages, kSmallPage);
  EXPECT_EQ(b_->get(in), std::vector(kManyPages, PageStatus::ok));
  EXPECT_EQ(in.memory, out.memory);
  EXPECT_EQ(replicas(), 0u);
}

TEST_F(Crowded, NothingIsKeptOfANodeThatMayHaveMissedRemovals) {
  Pages out("k", 3, kSmallPage), in("k", 3, kSmallPage);
  hold(out);
  const Landed pages = landed(in);
  a_owes(true);
  keep(pages);
  EXPECT_EQ(replicas(), 0u);
  a_owes(false);
  keep(pages);
  EXPECT_EQ(replicas(), 3u);
}

TEST_F(Crowded, NothingIsKeptIfARemovalCameAfterTheRecordsWereLearnt) {
  Pages out("k", 3, kSmallPage), in("k", 3, kSmallPage);
  hold(out);
  Landed pages = landed(in);
  const Digest removed[] = {pages.part.rows.at(1).digest};
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin(removed, 1, rows), Removals::Begun::in_journal);
  keep(pages);
  EXPECT_EQ(replicas(), 0u);
  // It began before the records were learnt, and has not ended.
  pages.part.learnt_at = b_->engine.adopter().removal_changes();
  keep(pages);
  EXPECT_EQ(replicas(), 2u);
  b_->engine.removals().end(removed);
  keep(pages);
  EXPECT_EQ(replicas(), 2u);
}

TEST_F(Crowded, BytesThatTheWorkerHasChangedMeanwhileAreNotKept) {
  Pages out("k", 3, kSmallPage), in("k", 3, kSmallPage);
  hold(out);
  const Landed pages = landed(in);
  pages.ops[1].dest[7] ^= std::byte{1};
  keep(pages);
  EXPECT_EQ(replicas(), 2u);
  EXPECT_EQ(b_->engine.storage().pool().stats().pins, 0u);
  EXPECT_EQ(b_->get(in), std::vector(3, PageStatus::ok));
  EXPECT_EQ(in.memory, out.memory);
}

TEST_F(Crowded, NothingIsKeptBeyondTheShareOrForAWorkerThatHasGivenUp) {
  Pages out("k", 3, kSmallPage), in("k", 3, kSmallPage);
  hold(out);
  const Landed pages = landed(in);
  b_->engine.adopter().set_replicas_max(3 * kSmallPage - 1);
  keep(pages);
  EXPECT_EQ(replicas(), 0u);
  b_->engine.adopter().set_replicas_max(kReplicasMax);
  b_->fence(true);
  keep(pages);
  EXPECT_EQ(replicas(), 0u);
  b_->fence(false);
  keep(pages);
  EXPECT_EQ(replicas(), 3u);
}

}  // namespace
}  // namespace peercached
