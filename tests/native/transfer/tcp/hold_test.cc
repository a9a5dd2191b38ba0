// Holds: a reader asks holders to keep pages, on the channels that reads use.
#include <algorithm>

#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

class TcpHold : public TcpTest {
 protected:
  // Returns which pages with these numbers are held. `ms` is the deadline.
  std::vector<uint8_t> hold(TransferEngine& engine, std::span<const uint64_t> numbers,
                            int64_t ms = 20'000) {
    std::vector<Digest> digests;
    for (uint64_t number : numbers) digests.push_back(digest_of_page(number));
    std::vector<uint8_t> held(digests.size());
    HoldBatch batch{kPeer, kHolderIncarnation, digests, held};
    engine.hold({&batch, 1}, 1234, Deadline::after_ms(ms));
    return held;
  }
};

TEST_F(TcpHold, HoldAnswersEveryPageAcrossSeveralFrames) {
  Holder holder(4 << 20);
  auto engine = reader_of(holder.endpoint());
  std::vector<uint64_t> numbers(tcp::kDigestsPerRequestMax + 900);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  for (uint64_t number : {0u, 7u, tcp::kDigestsPerRequestMax, tcp::kDigestsPerRequestMax + 899}) {
    holder.set(number, 1000);
  }
  const std::vector<uint8_t> held = hold(*engine, numbers);
  EXPECT_EQ(std::count(held.begin(), held.end(), 1), 4);
  EXPECT_EQ(held[7] + held.back(), 2);
  EXPECT_EQ(holder.last_hold_ms, 1234u);
  EXPECT_TRUE(watcher.troubles().empty());
  // The channel still works for reads.
  EXPECT_EQ(one_read(*engine, holder.set(20'000, 1000)), PageStatus::ok);
  EXPECT_EQ(engine->health().at(0).channels, 1u);
}

TEST_F(TcpHold, NothingIsHeldAtAnotherIncarnation) {
  Holder holder(1 << 20, {}, kHolderIncarnation + 1);
  auto engine = reader_of(holder.endpoint());
  holder.set(1, 1000);
  EXPECT_EQ(hold(*engine, std::vector<uint64_t>{1}), std::vector<uint8_t>{0});
}

TEST_F(TcpHold, RestartedHolderIsReconnected) {
  Holder holder(1 << 20);
  auto engine = reader_of(holder.endpoint());
  holder.set(1, 1000);
  const std::vector<uint64_t> one{1};
  EXPECT_EQ(hold(*engine, one), std::vector<uint8_t>{1});
  holder.restart();
  EXPECT_EQ(hold(*engine, one), std::vector<uint8_t>{1});
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(TcpHold, ASilentHolderCostsTheDeadlineAndIsReported) {
  ScriptedHolder holder = answering_holder();
  auto engine = reader_of(holder.endpoint());
  const TimePoint start = Clock::now();
  EXPECT_EQ(hold(*engine, std::vector<uint64_t>{1}, 100), std::vector<uint8_t>{0});
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  expect_trouble("silent for");
  EXPECT_EQ(engine->health().at(0).channels, 0u) << "never used again";
}

TEST_F(TcpHold, ABadAnswerHoldsNothingAndIsReported) {
  // Ways to damage the correct answer for two pages.
  using Spoil = std::function<void(std::vector<std::byte>&)>;
  constexpr size_t kBody = sizeof(tcp::FrameHeader);
  const std::vector<Spoil> spoils = {
      [](auto& frame) { frame[0] ^= std::byte{1}; },
      [](auto& frame) { frame[kBody] ^= std::byte{1}; },
      [](auto& frame) { frame[kBody + offsetof(tcp::HeldHead, count)] = std::byte{3}; },
      [](auto& frame) { frame[kBody + offsetof(tcp::HeldHead, reserved)] = std::byte{1}; },
      [](auto& frame) { frame.back() = std::byte{2}; },
      [](auto& frame) { frame[offsetof(tcp::FrameHeader, kind)] = std::byte{5}; },
  };
  for (size_t i = 0; i < spoils.size(); ++i) {
    ScriptedHolder holder([&](Wire& wire, int) {
      if (!ScriptedHolder::greet(wire)) return;
      const std::vector<std::byte> asked = wire.receive_frame();
      tcp::HoldHead head;
      std::vector<Digest> digests;
      if (asked.empty() || tcp::parse_hold(body_of(asked), head, digests) != nullptr) return;
      std::vector<std::byte> frame;
      tcp::append_held(frame, head.request, std::vector<uint8_t>(digests.size(), 1));
      spoils[i](frame);
      wire.send(frame);
      wire.ends();
    });
    auto engine = reader_of(holder.endpoint());
    EXPECT_EQ(hold(*engine, std::vector<uint64_t>{1, 2}), (std::vector<uint8_t>{0, 0})) << i;
    EXPECT_EQ(watcher.troubles().size(), i + 1);
  }
}

}  // namespace
}  // namespace peercached::testing
