// Pages that a draining node hands over: they arrive intact and published, or not at all.

#include "engine/engine_fixture.h"

namespace peercached {
namespace {

class Adopt : public EnginePair {
 protected:
  Adopted adopt(const Handover& part) {
    return b_->engine.adopter().adopt(b_->peer_index, part, Deadline::after_ms(kPatienceMs));
  }
  void a_owes(bool owes) { b_->engine.nodes().set_owes(b_->peer_index, owes); }
  uint64_t replicas_at_b(uint64_t bytes_max) {
    b_->engine.adopter().set_replicas_max(bytes_max);
    b_->engine.adopter().replicate(Deadline::after_ms(kPatienceMs));
    return b_->engine.storage().pool().replicas().keys;
  }
  std::vector<Handover> offered(uint64_t bytes_max = 1 << 30) {
    return a_->engine.offers().warmest(bytes_max).parts;
  }
  // Damages the payload only, like a worker with a torn cache line. The header stays valid.
  void spoil(const std::string& key) {
    const Digest one[] = {digest_of(a_->engine.open_namespace("ns", 0)->current().key, key)};
    PinnedPage page;
    a_->engine.storage().pool().pin(one, nullptr, false, {&page, 1});
    ASSERT_TRUE(page);
    page.payload()[5] ^= std::byte{1};
    a_->engine.storage().pool().unpin({&page, 1});
  }
};

TEST_F(Adopt, PagesGoOverByteForByteAndAreFoundThere) {
  open(64 << 20);
  Pages out("k", 40, 700'001);  // several parts, and a length that is no multiple of any block size
  out.fill();
  a_->engine.storage().objects().raise_generation(5);
  b_->engine.storage().objects().raise_generation(9);
  a_->set(out);
  const auto parts = offered();
  ASSERT_GT(parts.size(), 2u);
  size_t held = 0;
  for (const Handover& part : parts) {
    const Adopted adopted = adopt(part);
    EXPECT_EQ(adopted.why_not, "");
    held += adopted.taken.size();
    std::vector<Removed> removed;
    for (const Digest& digest : adopted.taken) removed.push_back({digest, 1});
    std::vector<RecordRow> rows;
    EXPECT_TRUE(a_->engine.removals().remove(removed, rows));
    EXPECT_EQ(rows.size(), adopted.taken.size());
  }
  EXPECT_EQ(held, 40u);
  Pages in("k", 40, 700'001);
  for (const PageStatus status : b_->get(in)) EXPECT_EQ(status, PageStatus::ok);
  EXPECT_EQ(in.memory, out.memory);
  for (const PageStatus status : a_->get(in)) EXPECT_EQ(status, PageStatus::ok);
  EXPECT_EQ(in.memory, out.memory);
  PinnedPage page;
  Pool& pool = b_->engine.storage().pool();
  pool.pin(std::span(&parts[0].rows[0].digest, 1), nullptr, false, {&page, 1});
  ASSERT_TRUE(page);
  EXPECT_EQ(page.born_of(), 5u) << "its node did not know more when it was set";
  pool.unpin({&page, 1});
}

TEST_F(Adopt, CorruptPageIsNotAdopted) {
  open(64 << 20);
  Pages out = a_->stored("k", 3, 70'000);
  spoil("k1");
  const Adopted adopted = adopt(offered().at(0));
  EXPECT_EQ(adopted.taken.size(), 2u);
  EXPECT_NE(adopted.why_not, "");
  Pages in("k", 3, 70'000);
  EXPECT_EQ(b_->get(in), (std::vector{PageStatus::ok, PageStatus::stale, PageStatus::ok}));
}

TEST_F(Adopt, PageRemovedMeanwhileIsNotAdopted) {
  open(64 << 20);
  Pages out = a_->stored("k", 2, 70'000);
  const Handover part = offered().at(0);
  a_->remove(out);
  EXPECT_TRUE(adopt(part).taken.empty());
  a_->set(out);  // perhaps in the same slots, but with new generations
  EXPECT_TRUE(adopt(part).taken.empty());
  // A page that was set at the taker, with another length.
  Pages newer = b_->stored("k", 1, 30'000);
  EXPECT_EQ(adopt(offered().at(0)).taken.size(), 1u) << "only the other page";
  Pages in("k", 1, 30'000);
  EXPECT_EQ(b_->get(in), std::vector{PageStatus::ok});
  EXPECT_EQ(in.memory, newer.memory);
}

TEST_F(Adopt, OversizedPageIsCountedButNotOffered) {
  open(160 << 20);
  Pages large("large", 1, kHandoverPageBytesMax + 1), small("small", 2, 4096);
  EXPECT_EQ(a_->set(large), std::vector{PageStatus::ok});
  a_->set(small);
  EXPECT_EQ(offered().at(0).rows.size(), 2u);
  EXPECT_EQ(a_->engine.offers().warmest(1 << 30).too_large, 1u);
  EXPECT_EQ(a_->engine.offers().warmest(4096).too_large, 0u) << "it is beyond that budget";
}

TEST_F(Adopt, TheMostRecentlyUsedComeFirstWithinTheBudget) {
  open(64 << 20);
  Pages disk("cold", 4, 70'000), warm("warm", 4, 70'000);
  warm.fill();
  a_->set(warm);
  a_->set(disk);
  a_->get(warm);
  const auto parts = offered(4 * 70'000);
  ASSERT_EQ(parts.size(), 1u);
  const auto ns = a_->engine.open_namespace("ns", 0)->current();
  std::vector<Digest> expected, got;
  for (const auto& key : warm.keys) expected.push_back(digest_of(ns.key, key));
  for (const RecordRow& row : parts[0].rows) got.push_back(row.digest);
  EXPECT_EQ(got, expected);
}

TEST_F(Adopt, ClearDropsAdoptedPagesAndRefusesTheirEpoch) {
  open(64 << 20);
  Pages out = a_->stored("k", 2, 70'000);
  const Handover part = offered().at(0);
  ASSERT_EQ(adopt(part).taken.size(), 2u);  // no worker has opened "ns" at b
  ASSERT_TRUE(b_->engine.storage().raise_epoch(part.namespace_id, 1));
  const Deadline deadline = Deadline::after_ms(kPatienceMs);
  while (b_->engine.storage().pool().stats().keys > 0 && !deadline.passed())
    std::this_thread::yield();
  EXPECT_EQ(b_->engine.storage().pool().stats().keys, 0u);
  EXPECT_TRUE(adopt(part).taken.empty());
}

TEST_F(Adopt, PageUnderRemovalIsNeitherAdoptedNorSet) {
  open(64 << 20);
  Pages out = a_->stored("k", 2, 70'000);
  const Handover part = offered().at(0);
  const Digest one[] = {part.rows[0].digest};
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin(one, 1, rows), Removals::Begun::in_journal);
  EXPECT_EQ(adopt(part).taken, std::vector{part.rows[1].digest});
  EXPECT_EQ(std::ranges::count(b_->set(out), PageStatus::removing), 1);
  b_->engine.removals().end(one);
  EXPECT_EQ(adopt(part).taken.size(), 2u);
  EXPECT_EQ(b_->set(out), (std::vector{PageStatus::ok, PageStatus::ok}));
}

TEST_F(Adopt, AFullPoolTakesNoPagesThatYoungerOnesWouldHaveToGoFor) {
  open(4 << 20);
  Pool& pool = b_->engine.storage().pool();
  Pages old = b_->stored("old", 1, 4000);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  for (int i = 0; i < 1200 && pool.room().free_bytes >= 4000; ++i) {
    Pages young("young" + std::to_string(i), 1, 4000);
    b_->set(young);
  }
  ASSERT_LT(pool.room().free_bytes, 4000u);
  Pages out = a_->stored("k", 2, 4000);
  Handover part = offered().at(0);
  part.spilled = true;
  const uint32_t oldest_ms = pool.room().coldest_idle_ms;
  const uint32_t next_ms = pool.room(8000).coldest_idle_ms;
  part.idle_ms = static_cast<uint32_t>((oldest_ms + next_ms) / 2 / kSpillIdleTimes);
  EXPECT_TRUE(adopt(part).full);
  part.rows.resize(1);
  EXPECT_EQ(adopt(part).taken.size(), 1u);
}

TEST_F(Adopt, PagesReadOftenBecomeReplicasWithinTheirShare) {
  open(64 << 20);
  Pages out = a_->stored("k", 10, 70'000);
  Pages in("k", 10, 70'000);
  const auto read_often = [&] {
    for (uint32_t i = 0; i < HotReads::kReads; ++i) {
      EXPECT_FALSE(b_->engine.hot().any());
      for (const PageStatus status : b_->get(in)) EXPECT_EQ(status, PageStatus::ok);
    }
  };
  read_often();
  a_owes(true);
  EXPECT_EQ(replicas_at_b(1 << 30), 0u) << "a may have missed removals";
  EXPECT_FALSE(b_->engine.hot().any());
  a_owes(false);
  read_often();
  // The ten come together, or in turns if the machine is so busy that `a` seems crowded.
  EXPECT_LT(replicas_at_b(10 * 70'000 - 1), 10u);
  read_often();
  EXPECT_EQ(replicas_at_b(10 * 70'000), 10u);
  EXPECT_EQ(b_->engine.storage().pool().stats().pins, 0u) << "replicas can be evicted";
  a_->remove(out);  // only there
  for (const PageStatus status : b_->get(in)) EXPECT_EQ(status, PageStatus::ok);
  EXPECT_EQ(in.memory, out.memory);
}

// The holder has missed the removal, and still gives the page to whoever asks for its record.
TEST_F(Adopt, NoReplicaIsMadeOfARecordThatIsOlderThanARemoval) {
  open(64 << 20);
  Pages out = a_->stored("k", 3, 70'000);
  Pages in("k", 3, 70'000);
  for (uint32_t i = 0; i < HotReads::kReads; ++i) b_->get(in);
  ASSERT_TRUE(b_->engine.hot().any());
  const Digest one[] = {digest_of(a_->engine.open_namespace("ns", 0)->current().key, "k1")};
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin(one, 1, rows), Removals::Begun::in_journal);
  b_->engine.removals().end(one);
  EXPECT_EQ(replicas_at_b(1 << 30), 0u);
}

TEST_F(Adopt, PagesFetchedForSomebodyAreReplicasBeyondTheirShareUnlessARemovalCameBetween) {
  open(64 << 20);
  Pages out = a_->stored("k", 3, 70'000);
  Handover part = offered().at(0);
  part.learnt_at = b_->engine.adopter().removal_changes();
  const Digest one[] = {digest_of(a_->engine.open_namespace("ns", 0)->current().key, "another")};
  std::vector<RecordRow> rows;
  ASSERT_EQ(b_->engine.removals().begin(one, 1, rows), Removals::Begun::in_journal);
  b_->engine.removals().end(one);
  const Deadline deadline = Deadline::after_ms(kPatienceMs);
  const Adopted late = b_->engine.adopter().fetch(b_->peer_index, part, deadline);
  EXPECT_TRUE(late.taken.empty());
  EXPECT_EQ(late.why_not, "pages were removed since these were read");
  part.learnt_at = b_->engine.adopter().removal_changes();
  EXPECT_EQ(b_->engine.adopter().fetch(b_->peer_index, part, deadline).taken.size(), 3u);
  EXPECT_EQ(b_->engine.storage().pool().replicas().keys, 3u);
  EXPECT_EQ(b_->engine.storage().pool().stats().pins, 0u);
}

TEST_F(Adopt, NothingIsTakenOrSetWhileDraining) {
  open(64 << 20);
  Pages out = a_->stored("k", 2, 70'000);
  b_->engine.set_taking(false);
  EXPECT_TRUE(adopt(offered().at(0)).taken.empty());
  for (const PageStatus status : b_->set(out)) EXPECT_EQ(status, PageStatus::draining);
  b_->engine.set_taking(true);
  EXPECT_EQ(adopt(offered().at(0)).taken.size(), 2u);
}

}  // namespace
}  // namespace peercached
