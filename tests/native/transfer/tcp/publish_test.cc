// Publishes: a holder sends its records to owners, on the channels that reads use.
#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

constexpr HolderIndex kOtherOwner = kPeer + 1;
constexpr uint64_t kFence = 7;

std::vector<RecordRow> some_rows(size_t count) {
  std::vector<RecordRow> rows;
  for (uint64_t i = 0; i < count; ++i) {
    rows.push_back({.digest = {i, i}, .offset = 64 * i, .generation = i + 1, .length = 100});
    rows.back().flags = kRecordResident;
  }
  return rows;
}

class TcpPublish : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_fault_guard(); }
  void SetUp() override { engine = make_reader(watcher); }

  static PublishBatch batch_of(HolderIndex peer, std::span<const RecordRow> rows) {
    return {peer, kHolderIncarnation, rows};
  }
  PublishAnswer publish(const PeerEndpoint& endpoint, std::span<const RecordRow> rows,
                        int64_t ms = 20'000) {
    engine->add_peer(kPeer, endpoint);
    PublishBatch batch = batch_of(kPeer, rows);
    engine->publish({&batch, 1}, fence, Deadline::after_ms(ms));
    return batch.answer;
  }

  std::atomic<uint64_t> fence{kFence};
  RecordingWatcher watcher;
  std::unique_ptr<TransferEngine> engine;
};

TEST_F(TcpPublish, AllOwnersGetAllTheirRecords) {
  Holder first(1 << 20), second(1 << 20);
  std::vector<RecordRow> at_first, at_second;
  const auto keep_in = [](std::vector<RecordRow>& kept) {
    return [&kept](Incarnation holder, uint64_t with_fence, std::span<const RecordRow> rows) {
      EXPECT_EQ(holder, kReaderIncarnation);
      EXPECT_EQ(with_fence, kFence);
      kept.insert(kept.end(), rows.begin(), rows.end());
      return true;
    };
  };
  first.publish = keep_in(at_first);
  second.publish = keep_in(at_second);
  engine->add_peer(kPeer, first.endpoint());
  engine->add_peer(kOtherOwner, second.endpoint());
  // More than one frame for the first owner, one frame for the second.
  const auto many = some_rows(tcp::kRowsPerRequestMax + 100), few = some_rows(3);
  std::vector<PublishBatch> batches{batch_of(kPeer, many), batch_of(kOtherOwner, few)};
  engine->publish(batches, fence, Deadline::after_ms(20'000));
  EXPECT_EQ(batches[0].answer, PublishAnswer::taken);
  EXPECT_EQ(batches[1].answer, PublishAnswer::taken);
  ASSERT_EQ(at_first.size(), many.size());
  EXPECT_EQ(std::memcmp(at_first.data(), many.data(), many.size() * sizeof(RecordRow)), 0);
  ASSERT_EQ(at_second.size(), few.size());
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(TcpPublish, RefusingOwnerGetsNoMoreFramesAndIsNoTrouble) {
  Holder owner(1 << 20);
  std::atomic<int> frames{0};
  owner.publish = [&](Incarnation, uint64_t, std::span<const RecordRow>) { return frames++ != 0; };
  EXPECT_EQ(publish(owner.endpoint(), some_rows(tcp::kRowsPerRequestMax + 1)),
            PublishAnswer::refused);
  EXPECT_EQ(frames, 1);
  EXPECT_EQ(fence, kFence) << "it has answered";
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(TcpPublish, SilentOwnerRaisesTheFence) {
  ScriptedHolder silent([](Wire& wire, int) {
    if (!ScriptedHolder::greet(wire)) return;
    wire.receive_frame();
    wire.ends();
  });
  EXPECT_EQ(publish(silent.endpoint(), some_rows(4), 100), PublishAnswer::none);
  EXPECT_EQ(fence, kFence + 1);
  EXPECT_TRUE(watcher.troubles().empty()) << "it is slow: what follows is for others to say";
}

TEST_F(TcpPublish, ResentRecordsCarryTheNextFence) {
  std::atomic<int> sessions{0};
  std::array<std::atomic<uint64_t>, 3> lines{};
  std::atomic<size_t> heard{0};
  ScriptedHolder owner([&](Wire& wire, int) {
    const int session = sessions++;
    if (!ScriptedHolder::greet(wire)) return;
    for (int frame = 0; frame < (session == 0 ? 2 : 1); ++frame) {
      const auto asked = wire.receive_frame();
      if (asked.empty()) return;
      uint64_t request = 0, with_fence = 0;
      std::vector<RecordRow> rows;
      const auto body = std::span(asked).subspan(sizeof(tcp::FrameHeader));
      ASSERT_EQ(tcp::parse_publish(body, request, with_fence, rows), nullptr);
      lines.at(heard++) = with_fence;
      if (session == 0 && frame == 1) return;  // dies without an answer to the second frame
      std::vector<std::byte> answer;
      tcp::append_published(answer, request, true);
      wire.send(answer);
    }
  });
  EXPECT_EQ(publish(owner.endpoint(), some_rows(1)), PublishAnswer::taken);
  EXPECT_EQ(publish(owner.endpoint(), some_rows(1)), PublishAnswer::taken);
  EXPECT_EQ(lines[0], kFence);
  EXPECT_EQ(lines[1], kFence);
  EXPECT_EQ(lines[2], kFence + 1);
}

TEST_F(TcpPublish, ABadAnswerIsTrouble) {
  ScriptedHolder lying([](Wire& wire, int) {
    if (!ScriptedHolder::greet(wire)) return;
    wire.receive_frame();
    std::vector<std::byte> frame;
    tcp::append_published(frame, 1'000'000, true);
    wire.send(frame);
    wire.ends();
  });
  EXPECT_EQ(publish(lying.endpoint(), some_rows(4)), PublishAnswer::none);
  EXPECT_EQ(fence, kFence + 1);
  ASSERT_EQ(watcher.troubles().size(), 1u);
  EXPECT_NE(watcher.troubles()[0].find("another publish"), std::string::npos);
}

}  // namespace
}  // namespace peercached::testing
