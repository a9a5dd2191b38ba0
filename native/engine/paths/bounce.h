// Memory of ours where pages of peers land on their way to a device, and are verified whole.
//
// Each device has a few slots of one size, made at their first use. A get takes one for the pages
// that fit into it, and waits for one if all are taken. So a device that hangs holds up no other.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "device/device.h"
#include "engine/peers/landing.h"

namespace peercached {

class Bounce {
 public:
  static constexpr uint64_t kSlotBytes = 32 << 20;
  static constexpr size_t kSlots = 2;  // of each device

  Bounce(Transports& transports, device::Devices* devices)
      : transports_(transports), devices_(devices) {}
  ~Bounce() {
    for (auto& [device, slots] : slots_) devices_->host_unmapped(slots.landing.base());
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  // A slot, until it ends.
  class Slot {
   public:
    Slot(Bounce& bounce, std::byte* base, bool& taken)
        : bounce_(&bounce), base_(base), taken_(taken) {}
    Slot(Slot&& other) noexcept
        : bounce_(std::exchange(other.bounce_, nullptr)),
          base_(other.base_),
          taken_(other.taken_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (bounce_ != nullptr) bounce_->give(taken_);
    }
    std::byte* base() const { return base_; }

   private:
    Bounce* bounce_;
    std::byte* const base_;
    bool& taken_;
  };

  // nullopt: no slot was free in time. Throws std::bad_alloc.
  std::optional<Slot> take(const device::DeviceId& device, Deadline deadline) {
    std::unique_lock lock(mutex_);
    Slots& slots = slots_of(device);
    bool* free = nullptr;
    const auto found = [&] {
      free = std::ranges::find(slots.taken, false);
      return free != slots.taken.end();
    };
    if (!freed_.wait_until(lock, deadline.at, found)) return std::nullopt;
    *free = true;
    const auto number = static_cast<size_t>(free - slots.taken.begin());
    return Slot(*this, slots.landing.base() + number * kSlotBytes, *free);
  }

 private:
  struct Slots {
    explicit Slots(Transports& transports) : landing(transports, kSlots * kSlotBytes) {}
    Landing landing;
    std::array<bool, kSlots> taken{};
  };

  Slots& slots_of(const device::DeviceId& device) {
    const auto [found, is_new] = slots_.try_emplace(device, transports_);
    Slots& slots = found->second;
    if (is_new) {
      try {
        devices_->host_mapped(slots.landing.base(), kSlots * kSlotBytes);
      } catch (const std::runtime_error&) {
        // Copies work, but are slow.
      }
    }
    return slots;
  }

  void give(bool& taken) {
    {
      const std::lock_guard lock(mutex_);
      taken = false;
    }
    freed_.notify_all();
  }

  Transports& transports_;
  device::Devices* const devices_;  // null: never used
  std::mutex mutex_;
  std::condition_variable freed_;
  std::map<device::DeviceId, Slots> slots_;
};

}  // namespace peercached
