// Whether this node serves others and takes pages, as the control plane tells it. Thread safe.
#pragma once

#include <atomic>

namespace peercached {

class Serving {
 public:
  // Whether anybody finds pages here: between begin() and end(), except while paused. A node pauses
  // when it may have missed removals.
  void begin() { open_.store(true, std::memory_order_release); }
  void end() { open_.store(false, std::memory_order_release); }
  void pause(bool paused) { paused_.store(paused, std::memory_order_release); }
  bool on() const {
    return open_.load(std::memory_order_acquire) && !paused_.load(std::memory_order_acquire);
  }
  // Whether it takes new pages. A node that drains does not.
  void take(bool taking) { taking_.store(taking, std::memory_order_release); }
  bool taking() const { return taking_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> open_{false}, paused_{false}, taking_{true};
};

}  // namespace peercached
