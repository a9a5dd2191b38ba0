// Pushes: a holder sends changes of its records to owners, on the channels that reads use.
#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

constexpr HolderIndex kOtherOwner = kPeer + 1;
constexpr uint64_t kFrom = 7;

std::vector<RecordRow> some_rows(size_t count) {
  std::vector<RecordRow> rows;
  for (uint64_t i = 0; i < count; ++i) {
    rows.push_back({.digest = {i, i}, .offset = 64 * i, .generation = i + 1, .length = 100});
    rows.back().flags = kRecordResident;
  }
  return rows;
}

class TcpPush : public TcpTest {
 protected:
  void SetUp() override { engine = make_reader(watcher); }

  static PushBatch batch_of(HolderIndex peer, std::span<const RecordRow> rows) {
    return {.peer = peer,
            .incarnation = kHolderIncarnation,
            .from = kFrom,
            .to = kFrom + rows.size(),
            .rows = rows};
  }
  // Returns where the owner says that it stands. Nothing: it did not answer.
  std::optional<uint64_t> push(const PeerEndpoint& endpoint, std::span<const RecordRow> rows,
                               int64_t ms = 20'000) {
    engine->add_peer(kPeer, endpoint);
    PushBatch batch = batch_of(kPeer, rows);
    engine->push({&batch, 1}, Deadline::after_ms(ms));
    return batch.answered ? std::optional(batch.stands_at) : std::nullopt;
  }

  std::unique_ptr<TransferEngine> engine;
};

TEST_F(TcpPush, AllOwnersGetTheirChanges) {
  Holder first(1 << 20), second(1 << 20);
  std::vector<RecordRow> at_first, at_second;
  const auto keep_in = [](std::vector<RecordRow>& kept) {
    return [&kept](Incarnation holder, const FeedPart& part) {
      EXPECT_EQ(holder, kReaderIncarnation);
      EXPECT_EQ(part.from, kFrom);
      EXPECT_EQ(part.to, part.from + part.rows.size());
      kept.insert(kept.end(), part.rows.begin(), part.rows.end());
      return part.to;
    };
  };
  first.push = keep_in(at_first);
  std::atomic<bool> has_lost_all{false};
  second.push = [&, keep = keep_in(at_second)](Incarnation holder, const FeedPart& part) {
    return has_lost_all ? uint64_t{0} : keep(holder, part);
  };
  engine->add_peer(kPeer, first.endpoint());
  engine->add_peer(kOtherOwner, second.endpoint());
  const auto many = some_rows(tcp::kRowsPerRequestMax), few = some_rows(3);
  std::vector<PushBatch> batches{batch_of(kPeer, many), batch_of(kOtherOwner, few)};
  engine->push(batches, Deadline::after_ms(20'000));
  for (const PushBatch& batch : batches) EXPECT_TRUE(batch.answered);
  EXPECT_EQ(batches[0].stands_at, kFrom + many.size());
  EXPECT_EQ(batches[1].stands_at, kFrom + few.size());
  ASSERT_EQ(at_first.size(), many.size());
  EXPECT_EQ(std::memcmp(at_first.data(), many.data(), many.size() * sizeof(RecordRow)), 0);
  ASSERT_EQ(at_second.size(), few.size());
  has_lost_all = true;
  batches[1] = batch_of(kOtherOwner, few);
  engine->push({&batches[1], 1}, Deadline::after_ms(20'000));
  EXPECT_EQ(batches[1].stands_at, 0u) << "it has none of our records any more";
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(TcpPush, SilentOwnerIsSlowAndNoTrouble) {
  ScriptedHolder silent = answering_holder();
  const TimePoint began = Clock::now();
  EXPECT_EQ(push(silent.endpoint(), some_rows(4), 100), std::nullopt);
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(100));
  EXPECT_TRUE(watcher.troubles().empty()) << "it is slow: what follows is for others to say";
}

TEST_F(TcpPush, ChangesAreSentAgainWhenAnIdleChannelHasDied) {
  std::atomic<int> sessions{0};
  std::array<std::atomic<uint64_t>, 3> heard{};
  std::atomic<size_t> frames{0};
  ScriptedHolder owner([&](Wire& wire, int) {
    const int session = sessions++;
    if (!ScriptedHolder::greet(wire)) return;
    for (int frame = 0; frame < (session == 0 ? 2 : 1); ++frame) {
      const auto asked = wire.receive_frame();
      if (asked.empty()) return;
      tcp::PushHead head;
      std::vector<RecordRow> rows;
      ASSERT_EQ(tcp::parse_push(body_of(asked), head, rows), nullptr);
      heard.at(frames++) = head.from;
      if (session == 0 && frame == 1) return;  // dies without an answer to the second frame
      std::vector<std::byte> answer;
      tcp::append_pushed(answer, head.request, head.to);
      wire.send(answer);
    }
  });
  EXPECT_EQ(push(owner.endpoint(), some_rows(1)), kFrom + 1);
  EXPECT_EQ(push(owner.endpoint(), some_rows(2)), kFrom + 2);
  EXPECT_EQ(frames, 3u);
  for (const auto& from : heard) EXPECT_EQ(from, kFrom);
}

TEST_F(TcpPush, ABadAnswerIsTrouble) {
  std::vector<std::byte> frame;
  tcp::append_pushed(frame, 1'000'000, kFrom + 4);
  ScriptedHolder lying = answering_holder(frame);
  EXPECT_EQ(push(lying.endpoint(), some_rows(4)), std::nullopt);
  expect_trouble("another push");
}

}  // namespace
}  // namespace peercached::testing
