// Memory of ours where pages of peers land on their way to a device, and are verified whole.
//
// Each device has a few slots of one size, made at their first use. A get takes one for the pages
// that fit into it, and waits for one if all are taken. So a device that hangs holds up no other.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "common/exiting.h"
#include "device/device.h"
#include "engine/peers/landing.h"
#include "ipc/handler.h"

namespace peercached {

class Bounce {
 public:
  static constexpr uint64_t kSlotBytes = 32 << 20;
  static constexpr size_t kSlots = 2;        // of each device
  static constexpr size_t kDevicesMax = 16;  // with more, those out of use are forgotten
  // Whether somebody still waits.
  static constexpr auto kLookEvery = std::chrono::milliseconds(50);

  Bounce(Transports& transports, device::Devices* devices)
      : transports_(transports), devices_(devices) {}
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

 private:
  // Of one device. Its own mutex, because the driver pins memory slowly.
  class Slots {
   public:
    Slots(Transports& transports, device::Devices& devices)
        : transports_(transports), devices_(devices) {}
    ~Slots() {
      if (landing_) devices_.host_unmapped(landing_->base());
    }
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;

    std::byte* take(const RequestContext& context) {
      std::unique_lock lock(mutex_);
      if (!landing_) make();
      bool* free = nullptr;
      const auto found = [&] {
        free = std::ranges::find(taken_, false);
        return free != taken_.end();
      };
      while (!freed_.wait_until(lock, std::min(context.deadline.at, Clock::now() + kLookEvery),
                                found)) {
        if (context.deadline.passed() || context.gate->fenced() || is_exiting(context.pid))
          return nullptr;
      }
      *free = true;
      return landing_->base() + static_cast<size_t>(free - taken_.begin()) * kSlotBytes;
    }
    void give(const std::byte* base) {
      {
        const std::lock_guard lock(mutex_);
        taken_[static_cast<size_t>(base - landing_->base()) / kSlotBytes] = false;
      }
      freed_.notify_one();
    }

   private:
    void make() {
      landing_ = std::make_unique<Landing>(transports_, kSlots * kSlotBytes);
      try {
        devices_.host_mapped(landing_->base(), kSlots * kSlotBytes);
      } catch (const std::runtime_error&) {
        // Copies work, but are slow.
      }
    }

    Transports& transports_;
    device::Devices& devices_;
    std::mutex mutex_;
    std::condition_variable freed_;
    std::unique_ptr<Landing> landing_;
    std::array<bool, kSlots> taken_{};
  };

 public:
  // A slot, until it ends.
  class Slot {
   public:
    Slot(std::shared_ptr<Slots> slots, std::byte* base) : slots_(std::move(slots)), base_(base) {}
    Slot(Slot&& other) noexcept : slots_(std::move(other.slots_)), base_(other.base_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (slots_) slots_->give(base_);
    }
    std::byte* base() const { return base_; }

   private:
    std::shared_ptr<Slots> slots_;
    std::byte* const base_;
  };

  // nullopt: no slot was free in time, or the worker has gone. Throws std::bad_alloc.
  std::optional<Slot> take(const device::DeviceId& device, const RequestContext& context) {
    std::shared_ptr<Slots> slots = of(device);
    std::byte* base = slots->take(context);
    if (base == nullptr) return std::nullopt;
    return Slot(std::move(slots), base);
  }

 private:
  std::shared_ptr<Slots> of(const device::DeviceId& device) {
    const std::lock_guard lock(mutex_);
    if (slots_.size() >= kDevicesMax && !slots_.contains(device))
      std::erase_if(slots_, [](const auto& one) { return one.second.use_count() == 1; });
    std::shared_ptr<Slots>& slots = slots_[device];
    if (!slots) slots = std::make_shared<Slots>(transports_, *devices_);
    return slots;
  }

  Transports& transports_;
  device::Devices* const devices_;  // null: never used
  std::mutex mutex_;
  std::map<device::DeviceId, std::shared_ptr<Slots>> slots_;
};

}  // namespace peercached
