// Memory of ours where pages of peers land on their way to a device, and are verified whole.
//
// A few slots of one size. A get takes one for the pages that fit into it, and waits for one if all
// are taken. The memory is made at its first use, because few nodes have devices.
#pragma once

#include <bitset>
#include <condition_variable>
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
  static constexpr size_t kSlots = 4;

  Bounce(Transports& transports, device::Devices* devices)
      : transports_(transports), devices_(devices) {}
  ~Bounce() {
    if (landing_) devices_->host_unmapped(landing_->base());
  }
  Bounce(const Bounce&) = delete;
  Bounce& operator=(const Bounce&) = delete;

  // A slot, until it ends.
  class Slot {
   public:
    Slot(Bounce& bounce, size_t number) : bounce_(&bounce), number_(number) {}
    Slot(Slot&& other) noexcept
        : bounce_(std::exchange(other.bounce_, nullptr)), number_(other.number_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (bounce_ != nullptr) bounce_->give(number_);
    }
    std::byte* base() const { return bounce_->landing_->base() + number_ * kSlotBytes; }

   private:
    Bounce* bounce_;
    size_t number_;
  };

  // nullopt: no slot was free in time. Throws std::bad_alloc.
  std::optional<Slot> take(Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!landing_) {
      landing_ = std::make_unique<Landing>(transports_, kSlots * kSlotBytes);
      try {
        devices_->host_mapped(landing_->base(), kSlots * kSlotBytes);
      } catch (const std::runtime_error&) {
        // Copies work, but are slow.
      }
    }
    if (!freed_.wait_until(lock, deadline.at, [&] { return !taken_.all(); })) return std::nullopt;
    size_t number = 0;
    while (taken_[number]) ++number;
    taken_[number] = true;
    return Slot(*this, number);
  }

 private:
  void give(size_t number) {
    {
      const std::lock_guard lock(mutex_);
      taken_[number] = false;
    }
    freed_.notify_one();
  }

  Transports& transports_;
  device::Devices* const devices_;  // null: never used
  std::mutex mutex_;
  std::condition_variable freed_;
  std::bitset<kSlots> taken_;
  std::unique_ptr<Landing> landing_;
};

}  // namespace peercached
