// Makes a large memory of the host known to devices, in the background: the driver pins some GB in
// a second. Copies work meanwhile, but are slow. It is one piece, because the driver refuses copies
// of memory that is pinned in part.
#pragma once

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
      : devices_(devices), base_(base), thread_([this, bytes] { pin(bytes); }) {}
  ~Pinning() {
    thread_.join();
    if (done_) devices_.host_unmapped(base_);
  }
  Pinning(const Pinning&) = delete;
  Pinning& operator=(const Pinning&) = delete;

 private:
  void pin(uint64_t bytes) {
    try {
      devices_.host_mapped(base_, bytes);
      done_ = true;
    } catch (const std::runtime_error&) {
      // Copies go through the driver's own memory.
    }
  }

  Devices& devices_;
  std::byte* const base_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace peercached::device
