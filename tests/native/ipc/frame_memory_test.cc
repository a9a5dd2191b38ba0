// The memory of large requests is bounded, in total and per user, and is released.
#include "ipc/frame_memory.h"

#include "ipc/frame_stream.h"
#include "ipc_fixture.h"

namespace peercached {
namespace {

using ipc::ErrorCode;
using ipc::FrameMemory;
using ipc::Op;

class LargeRequests : public IpcTest {
 protected:
  static constexpr uint32_t kLarge = 8 << 20;

  // A request without its last byte, so that it keeps its memory. It never fits in one piece.
  std::string large(RawWorker& worker) {
    return worker.head(Op::exists, kLarge, 1) + std::string(kLarge - 1, 'x');
  }
  void restart(uint64_t frame_memory) {
    config.frame_memory_max = frame_memory;
    config.notices = &notices;
    IpcTest::restart();
  }
  Notices notices;
};

TEST_F(LargeRequests, RequestMemoryOfAUserIsBoundedAndExcessRefused) {
  restart(5 * kLarge);  // one user may have half: room for two
  std::vector<std::unique_ptr<RawWorker>> holders;
  for (int i = 0; i < 2; ++i) {
    holders.push_back(attached());
    ASSERT_TRUE(holders.back()->send_bytes(large(*holders.back())));
  }
  std::unique_ptr<RawWorker> worker;
  ASSERT_TRUE(eventually([&] {
    worker = attached();
    const auto reply = worker->ask(Op::exists, std::string(kLarge, 'x'), 1);
    EXPECT_TRUE(reply);
    if (!reply || reply->error() != ErrorCode::limit) return false;  // not all read yet
    EXPECT_NE(reply->body.find("no memory for a request of 8388632 bytes"), std::string::npos)
        << reply->body;
    return true;
  }));
  EXPECT_EQ(worker->ask(Op::ping)->error(), ErrorCode::none) << "that connection goes on";
  EXPECT_EQ(server->stats().requests_refused, 1u);
  EXPECT_FALSE(notices.take().empty());
  expect_bystander_served();
  // Closing the holders makes room.
  holders.clear();
  EXPECT_TRUE(eventually([&] {
    const auto reply = attached()->ask(Op::exists, std::string(kLarge, 'x'), 1);
    return reply && reply->error() == ErrorCode::bad_frame;  // read whole, but its columns are bad
  }));
}

TEST_F(LargeRequests, TheirMemoryGoesBackWhenAConnectionIsQuiet) {
  restart(2 * kLarge);
  auto first = attached(), second = attached();
  // Many keys of the largest size: well formed and large.
  const std::vector<std::string> keys(2000, std::string(4000, 'k'));
  ASSERT_EQ(first->ask(Op::exists, pack_keys(keys), 2000)->error(), ErrorCode::none);
  EXPECT_TRUE(eventually([&] {
    return second->ask(Op::exists, pack_keys(keys), 2000)->error() == ErrorCode::none;
  })) << "the first has it still";
}

TEST(FrameMemory, OneUserLeavesRoomForAnother) {
  FrameMemory memory(100, 60);
  FrameMemory::Share first(memory, 1), second(memory, 1), other(memory, 2);
  EXPECT_TRUE(first.grow(40));
  EXPECT_FALSE(second.grow(21));
  EXPECT_TRUE(second.grow(20));
  EXPECT_FALSE(other.grow(41)) << "100 in all";
  EXPECT_TRUE(other.grow(40));
  EXPECT_EQ(memory.used(), 100u);
  first.shrink(0);
  EXPECT_TRUE(second.grow(60));
  EXPECT_EQ(memory.used(), 100u);
}

TEST(FrameMemory, IsGivenBackAtTheEnd) {
  FrameMemory memory(100, 100);
  {
    FrameMemory::Share share(memory, 1);
    EXPECT_TRUE(share.grow(100));
  }
  EXPECT_EQ(memory.used(), 0u);
}

}  // namespace
}  // namespace peercached
