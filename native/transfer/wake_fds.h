// Eventfds, one for each thread of a read. Writing to one wakes its thread from poll(). Later reads
// use them again.
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
