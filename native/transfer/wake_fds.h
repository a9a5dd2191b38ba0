// Eventfds for the threads of a read to be woken from poll(), kept for the next read.
#pragma once

#include <mutex>
#include <vector>

namespace peercached {

class WakeFds {
 public:
  WakeFds() = default;
  ~WakeFds();
  WakeFds(const WakeFds&) = delete;
  WakeFds& operator=(const WakeFds&) = delete;

  int take();  // -1: out of descriptors
  void give_back(int fd);

 private:
  std::mutex mutex_;
  std::vector<int> all_, free_;
};

}  // namespace peercached
