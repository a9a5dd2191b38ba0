// If a worker truncates its memory, a copy returns false and the process survives.
#include "common/fault_guard.h"

#include <csignal>
#include <thread>
#include <vector>

#include "ipc/raw_worker.h"

namespace peercached {
namespace {

void touch(void* at) { *static_cast<volatile char*>(at) = 1; }

class FaultGuardTest : public ::testing::Test {
 protected:
  void SetUp() override { install_fault_guard(); }
};

TEST_F(FaultGuardTest, AccessToATruncatedMemfdReturnsFalse) {
  Memory memory(8192);
  EXPECT_TRUE(guarded(memory.at, 8192, touch, memory.at + 5000));
  ASSERT_EQ(::ftruncate(memory.fd.get(), 4096), 0);
  EXPECT_FALSE(guarded(memory.at, 8192, touch, memory.at + 5000));
  EXPECT_TRUE(guarded(memory.at, 8192, touch, memory.at)) << "and works again afterwards";
}

TEST_F(FaultGuardTest, ManyThreadsFaultAtOnceEachOnItsOwn) {
  Memory memory(8192);
  ASSERT_EQ(::ftruncate(memory.fd.get(), 0), 0);
  std::vector<std::thread> threads;
  std::atomic<int> caught{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, mine = memory.at + 4096 + 64 * i] {
      for (int k = 0; k < 500; ++k) caught += !guarded(memory.at, 8192, touch, mine);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(caught, 2000);
}

TEST_F(FaultGuardTest, AnInnerGuardLeavesAnOuterFaultToTheOuterOne) {
  struct Both {
    Memory outer{4096}, inner{4096};
    bool inner_result = true;
  } both;
  ASSERT_EQ(::ftruncate(both.outer.fd.get(), 0), 0);
  const bool outer_result = guarded(
      both.outer.at, 4096,
      [](void* raw) {
        auto* memories = static_cast<Both*>(raw);
        memories->inner_result = guarded(memories->inner.at, 4096, touch, memories->outer.at);
      },
      &both);
  EXPECT_FALSE(outer_result);
  EXPECT_TRUE(both.inner_result) << "left behind by the jump";
  EXPECT_TRUE(guarded(both.inner.at, 4096, touch, both.inner.at));
}

using FaultGuardDeathTest = FaultGuardTest;

TEST_F(FaultGuardDeathTest, AFaultElsewhereStillEndsTheProcess) {
  Memory memory(4096), other(4096);
  ASSERT_EQ(::ftruncate(memory.fd.get(), 0), 0);
  EXPECT_DEATH(guarded(other.at, 4096, touch, memory.at), "");
  EXPECT_DEATH(touch(memory.at), "");
}

TEST_F(FaultGuardDeathTest, ASignalSentByHandKeepsItsMeaning) { EXPECT_DEATH(::raise(SIGBUS), ""); }

}  // namespace
}  // namespace peercached
