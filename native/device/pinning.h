// Makes a large memory of the host known to devices, in the background: pinning takes a second for
// some GB. Copies work meanwhile, but are slow.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include "device/device.h"

namespace peercached::device {

class Pinning {
 public:
  Pinning(Devices& devices, std::byte* base, uint64_t bytes)
      : devices_(devices), base_(base), bytes_(bytes), thread_([this] { pin(); }) {}
  ~Pinning() {
    stopping_ = true;
    thread_.join();
    for (uint64_t at = 0; at < pinned_bytes_; at += kPieceBytes) devices_.host_unmapped(base_ + at);
  }
  Pinning(const Pinning&) = delete;
  Pinning& operator=(const Pinning&) = delete;

  uint64_t pinned_bytes() const { return pinned_bytes_.load(std::memory_order_relaxed); }

 private:
  // The driver stops other calls of this process while it pins a piece.
  static constexpr uint64_t kPieceBytes = uint64_t{256} << 20;

  void pin() {
    try {
      for (uint64_t at = 0; at < bytes_ && !stopping_; at += kPieceBytes) {
        const uint64_t piece = std::min(kPieceBytes, bytes_ - at);
        devices_.host_mapped(base_ + at, piece);
        pinned_bytes_ += piece;
      }
    } catch (const std::runtime_error&) {
      // The operator sees how much is pinned. The rest is copied through the driver's own memory.
    }
  }

  Devices& devices_;
  std::byte* const base_;
  const uint64_t bytes_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> pinned_bytes_{0};
  std::thread thread_;
};

}  // namespace peercached::device
