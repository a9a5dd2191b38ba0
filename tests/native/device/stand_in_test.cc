#include "device/stand_in.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "device/cuda.h"
#include "device_memory.h"

namespace peercached::device {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kBytes = 1 << 16;

struct StandIn : ::testing::Test {
  std::unique_ptr<Devices> devices = make_stand_in();
  DeviceMemory gpu{kBytes};
  std::shared_ptr<Memory> memory = devices->import(gpu.handle());
  std::vector<std::byte> host = std::vector<std::byte>(kBytes);

  Outcome copy(Direction direction, std::vector<Piece> pieces) {
    return devices->start(direction, pieces)->wait_until(TimePoint::max());
  }
};

TEST_F(StandIn, CopiesRowsWithTheirPitchesBothWays) {
  gpu.fill(1);
  // Three rows of 100 bytes: 1000 apart on the device, side by side here.
  const Piece piece{memory.get(), 50, host.data() + 7, 100, 3, 1000, 100};
  EXPECT_EQ(copy(Direction::to_host, {piece}), Outcome::done);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(std::memcmp(host.data() + 7 + row * 100, gpu.bytes().data() + 50 + row * 1000, 100),
              0);
  }
  std::memset(gpu.bytes().data(), 0, kBytes);
  EXPECT_EQ(copy(Direction::to_device, {piece}), Outcome::done);
  EXPECT_EQ(std::memcmp(host.data() + 107, gpu.bytes().data() + 1050, 100), 0);
  EXPECT_EQ(gpu.bytes()[150], std::byte{});
}

TEST_F(StandIn, CopiesGoOnUntilTheyEnd) {
  gpu.faults().held = 1;
  const Piece piece{memory.get(), 0, host.data(), 1000, 1, 0, 0};
  const auto copies = devices->start(Direction::to_host, std::span(&piece, 1));
  EXPECT_EQ(copies->wait_until(Clock::now() + 1ms), Outcome::running);
  gpu.faults().held = 0;
  EXPECT_EQ(copies->wait_until(TimePoint::max()), Outcome::done);
}

TEST_F(StandIn, ALostDeviceWorksAgainWhenItsMemoryIsGivenBack) {
  DeviceMemory other(kBytes, 2);
  const auto memory_of_other = devices->import(other.handle());
  gpu.faults().fail_after = 2;
  const Piece piece{memory.get(), 0, host.data(), 10, 1, 0, 0};
  EXPECT_EQ(copy(Direction::to_host, {piece, piece, piece}), Outcome::lost);
  EXPECT_EQ(copy(Direction::to_host, {piece}), Outcome::lost);
  EXPECT_THROW(devices->import(gpu.handle()), std::runtime_error);
  const Piece of_other{memory_of_other.get(), 0, host.data(), 10, 1, 0, 0};
  EXPECT_EQ(copy(Direction::to_host, {of_other}), Outcome::done);
  memory.reset();
  memory = devices->import(gpu.handle());
  const Piece again{memory.get(), 0, host.data(), 10, 1, 0, 0};
  EXPECT_EQ(copy(Direction::to_host, {again}), Outcome::done);
}

TEST_F(StandIn, RefusesMemoryThatIsNotThere) {
  Handle handle = gpu.handle();
  handle.bytes = kBytes + 1;
  EXPECT_THROW(devices->import(handle), std::runtime_error);
  handle = gpu.handle();
  handle.kind = Kind::cuda_ipc;
  EXPECT_THROW(devices->import(handle), std::runtime_error);
}

TEST(Cuda, WithoutADriverItSaysWhatToDo) {
  try {
    make_cuda();
    GTEST_SKIP() << "there is a GPU";
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.find("driver") != std::string::npos || text.find("nvidia") != text.npos)
        << text;
  }
}

}  // namespace
}  // namespace peercached::device
