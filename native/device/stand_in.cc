#include "device/stand_in.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "common/error_text.h"

namespace peercached::device {
namespace {

struct State {
  std::atomic<unsigned> allocations{0};
  std::atomic<uint64_t> imported_bytes{0}, copied_bytes{0};
  std::atomic<bool> lost{false};
};

class StandInMemory final : public Memory {
 public:
  StandInMemory(const Handle& handle, std::shared_ptr<State> state)
      : bytes_(handle.bytes), device_(handle.device), state_(std::move(state)) {
    // Memory that shrinks would end this process at the next access.
    struct stat status {};
    if (::fcntl(handle.file, F_ADD_SEALS, F_SEAL_SHRINK) != 0 || ::fstat(handle.file, &status) != 0)
      throw std::runtime_error("a stand-in's memory is a memfd that can be sealed: " +
                               error_text(errno));
    const auto file_bytes = static_cast<uint64_t>(status.st_size);
    if (bytes_ == 0 || file_bytes < kStandInPageBytes || bytes_ > file_bytes - kStandInPageBytes)
      throw std::runtime_error("an allocation of " + std::to_string(bytes_) +
                               " bytes in a stand-in of " + std::to_string(file_bytes) +
                               ": its last page is for faults");
    void* at = ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle.file, 0);
    if (at == MAP_FAILED) throw std::runtime_error("mapping a stand-in: " + error_text(errno));
    base_ = static_cast<std::byte*>(at);
    file_bytes_ = file_bytes;
    ++state_->allocations;
    state_->imported_bytes += bytes_;
  }
  StandInMemory(const StandInMemory&) = delete;
  StandInMemory& operator=(const StandInMemory&) = delete;
  ~StandInMemory() override {
    ::munmap(base_, file_bytes_);
    state_->imported_bytes -= bytes_;
    --state_->allocations;
  }

  uint64_t bytes() const override { return bytes_; }
  const DeviceId& device() const override { return device_; }
  std::byte* base() const { return base_; }
  State& state() const { return *state_; }
  StandInFaults& faults() const {
    return *reinterpret_cast<StandInFaults*>(base_ + file_bytes_ - kStandInPageBytes);
  }

 private:
  const uint64_t bytes_;
  const DeviceId device_;
  const std::shared_ptr<State> state_;
  std::byte* base_ = nullptr;
  uint64_t file_bytes_ = 0;
};

void copy(Direction direction, const Piece& piece, std::byte* device) {
  for (uint32_t row = 0; row < piece.rows; ++row) {
    std::byte* there = device + row * piece.device_pitch;
    std::byte* here = piece.host + row * piece.host_pitch;
    if (direction == Direction::to_device)
      std::memcpy(there, here, piece.row_bytes);
    else
      std::memcpy(here, there, piece.row_bytes);
  }
}

Outcome run(Direction direction, const std::vector<Piece>& pieces) {
  const auto& first = static_cast<const StandInMemory&>(*pieces[0].memory);
  const uint32_t refused = first.faults().refused.load();
  if (refused != 0) first.faults().refused = refused - 1;
  for (size_t k = 0; k < pieces.size(); ++k) {
    if (refused != 0 && k == pieces.size() / 2) return Outcome::failed;
    const bool backwards = first.faults().backwards.load() != 0;
    const Piece& piece = pieces[backwards ? pieces.size() - 1 - k : k];
    const auto& memory = static_cast<const StandInMemory&>(*piece.memory);
    StandInFaults& faults = memory.faults();
    while (faults.held.load() != 0 && piece.at >= faults.held_from.load())
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::this_thread::sleep_for(std::chrono::microseconds(faults.delay_us.load()));
    if (const uint32_t left = faults.fail_after.load(); left != 0) {
      faults.fail_after = left - 1;
      if (left == 1) memory.state().lost = true;
    }
    if (memory.state().lost) return Outcome::lost;
    copy(direction, piece, memory.base() + piece.at);
    memory.state().copied_bytes += uint64_t{piece.rows} * piece.row_bytes;
  }
  return Outcome::done;
}

class StandInCopies final : public Copies {
 public:
  StandInCopies(Direction direction, std::vector<Piece> pieces)
      : running_(std::async(std::launch::async, run, direction, std::move(pieces))) {}
  // The destructor of running_ waits.

  Outcome wait_until(TimePoint until) noexcept override {
    if (outcome_ != Outcome::running) return outcome_;
    if (running_.wait_until(until) == std::future_status::ready) outcome_ = running_.get();
    return outcome_;
  }

 private:
  Outcome outcome_ = Outcome::running;
  std::future<Outcome> running_;
};

class StandIns final : public Devices {
 public:
  const char* name() const override { return "stand-in"; }

  std::shared_ptr<Memory> import(const Handle& handle) override {
    if (handle.kind != Kind::stand_in)
      throw std::runtime_error(
          "this daemon plays its devices (gpu = \"stand-in\"), and the memory is of a real one");
    const std::lock_guard lock(mutex_);
    std::erase_if(states_, [](const auto& one) { return one.second.expired(); });
    std::shared_ptr<State> state = states_[handle.device].lock();
    if (!state) states_[handle.device] = state = std::make_shared<State>();
    if (state->lost) throw std::runtime_error("this stand-in is lost");
    return std::make_shared<StandInMemory>(handle, std::move(state));
  }
  void host_mapped(std::byte*, uint64_t) override {}
  void host_unmapped(std::byte*) noexcept override {}

  std::unique_ptr<Copies> start(Direction direction, std::span<const Piece> pieces) override {
    return std::make_unique<StandInCopies>(direction,
                                           std::vector<Piece>(pieces.begin(), pieces.end()));
  }

  std::vector<DeviceState> states() const override {
    const std::lock_guard lock(mutex_);
    std::vector<DeviceState> all;
    for (const auto& [id, known] : states_) {
      const auto state = known.lock();
      if (!state) continue;
      all.push_back({id, "stand-in", state->allocations, state->imported_bytes, state->copied_bytes,
                     state->lost ? "a test has lost it" : "", ""});
    }
    return all;
  }

 private:
  mutable std::mutex mutex_;
  // Kept by the memory. So a lost device works again when nothing of before is left.
  std::map<DeviceId, std::weak_ptr<State>> states_;
};

}  // namespace

std::unique_ptr<Devices> make_stand_in() { return std::make_unique<StandIns>(); }

}  // namespace peercached::device
