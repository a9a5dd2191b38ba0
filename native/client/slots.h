// Bounds how many threads do something at the same time. A Slot gives its place back when it is
// destroyed, also if its call was interrupted.
#pragma once

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "client/waits.h"

namespace peercached::client {

class Slots;

class Slot {
 public:
  explicit Slot(std::shared_ptr<Slots> slots);
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

 private:
  const std::shared_ptr<Slots> slots_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

class Slots {
 public:
  explicit Slots(unsigned count) : count_(count) {}

  // Null: none was free in time. A thread that has a slot and asks again (in a signal handler) gets
  // another one at once, because it would wait for itself.
  static std::unique_ptr<Slot> take(const std::shared_ptr<Slots>& slots, TimePoint end,
                                    Waits& waits) {
    const auto self = std::this_thread::get_id();
    auto& taken = slots->taken_;
    while (taken.size() >= slots->count_ &&
           std::find(taken.begin(), taken.end(), self) == taken.end()) {
      const TimePoint now = Clock::now();
      if (now >= end) return nullptr;
      waits.ready(-1, 0, std::min(end, now + std::chrono::microseconds(200)));
    }
    return std::make_unique<Slot>(slots);
  }

 private:
  friend class Slot;
  const unsigned count_;
  std::vector<std::thread::id> taken_;
};

inline Slot::Slot(std::shared_ptr<Slots> slots) : slots_(std::move(slots)) {
  slots_->taken_.push_back(thread_);
}

inline Slot::~Slot() {
  slots_->taken_.erase(std::find(slots_->taken_.begin(), slots_->taken_.end(), thread_));
}

}  // namespace peercached::client
