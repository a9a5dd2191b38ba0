// Lookups: a reader asks owners for digests, on the channels that reads use.
#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

constexpr HolderIndex kOther = kPeer + 1;

class TcpLookup : public TcpTest {
 protected:
  void SetUp() override { engine = make_reader(watcher); }

  static LookupBatch batch_of(HolderIndex peer, std::span<const Digest> digests) {
    return {peer, kHolderIncarnation, digests};
  }
  // An owner that knows the holder of each digest with an even `lo`.
  static void answer_even(std::span<const Digest> digests, uint64_t view_number, Located& located) {
    located.holders = {71, 72};
    for (const Digest& digest : digests) {
      if (digest.lo % 2 != 0) continue;
      RecordRow row{.digest = digest, .length = 100};
      row.holder = digest.lo % 4 == 0 ? 0 : 1;
      located.rows.push_back(row);
    }
    located.final = view_number == 5;
  }

  std::unique_ptr<TransferEngine> engine;
};

std::vector<Digest> some_digests(size_t count) {
  std::vector<Digest> digests;
  for (uint64_t i = 0; i < count; ++i) digests.push_back({i, i});
  return digests;
}

TEST_F(TcpLookup, EachOwnerAnswersAllItsDigests) {
  Holder first(1 << 20), second(1 << 20);
  first.lookup = second.lookup = answer_even;
  engine->add_peer(kPeer, first.endpoint());
  engine->add_peer(kOther, second.endpoint());
  // More than one frame for the first owner, one frame for the second.
  const auto many = some_digests(tcp::kDigestsPerRequestMax + 100), few = some_digests(3);
  std::vector<LookupBatch> batches{batch_of(kPeer, many), batch_of(kOther, few)};
  engine->lookup(batches, 5, Deadline::after_ms(20'000));
  for (const LookupBatch& batch : batches) {
    EXPECT_TRUE(batch.answered);
    EXPECT_TRUE(batch.located.final);
    ASSERT_EQ(batch.located.rows.size(), (batch.digests.size() + 1) / 2);
    for (const RecordRow& row : batch.located.rows) {
      EXPECT_EQ(batch.located.holders[row.holder], row.digest.lo % 4 == 0 ? 71u : 72u);
    }
  }
  EXPECT_TRUE(watcher.troubles().empty());

  LookupBatch of_another_view = batch_of(kPeer, few);
  engine->lookup({&of_another_view, 1}, 6, Deadline::after_ms(20'000));
  EXPECT_TRUE(of_another_view.answered);
  EXPECT_FALSE(of_another_view.located.final);
  EXPECT_EQ(engine->health().at(0).channels, 1u);
}

TEST_F(TcpLookup, SilentOwnerDoesNotKeepOthersFromAnswering) {
  ScriptedHolder silent = answering_holder();
  Holder other(1 << 20);
  other.lookup = answer_even;
  engine->add_peer(kPeer, silent.endpoint());
  engine->add_peer(kOther, other.endpoint());
  const auto digests = some_digests(4);
  std::vector<LookupBatch> batches{batch_of(kPeer, digests), batch_of(kOther, digests)};
  engine->lookup(batches, 5, Deadline::after_ms(1000));
  EXPECT_FALSE(batches[0].answered);
  EXPECT_TRUE(batches[1].answered);
  EXPECT_TRUE(watcher.troubles().empty()) << "it is slow: what follows is for others to say";
}

TEST_F(TcpLookup, BadLookupAnswerIsTroubleAndIgnored) {
  std::vector<std::byte> frame;
  tcp::append_located(frame, 1'000'000, {.final = true, .holders = {}, .rows = {}});
  ScriptedHolder lying = answering_holder(frame);
  engine->add_peer(kPeer, lying.endpoint());
  const auto digests = some_digests(4);
  LookupBatch batch = batch_of(kPeer, digests);
  engine->lookup({&batch, 1}, 5, Deadline::after_ms(20'000));
  EXPECT_FALSE(batch.answered);
  expect_trouble("another lookup");
}

TEST_F(TcpLookup, AnotherIncarnationIsNotAsked) {
  Holder holder(1 << 20, {}, kHolderIncarnation + 1);
  holder.lookup = answer_even;
  engine->add_peer(kPeer, holder.endpoint());
  const auto digests = some_digests(4);
  LookupBatch batch = batch_of(kPeer, digests);
  engine->lookup({&batch, 1}, 5, Deadline::after_ms(20'000));
  EXPECT_FALSE(batch.answered);
  EXPECT_TRUE(batch.located.rows.empty());
}

}  // namespace
}  // namespace peercached::testing
