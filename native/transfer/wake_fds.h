// Eventfds, one for each thread of a read. Writing to one wakes its thread from poll(). Later reads
// use them again.
#pragma once

#include <vector>

#include "common/mutex.h"

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
  Mutex mutex_;
  std::vector<int> all_ GUARDED_BY(mutex_), free_ GUARDED_BY(mutex_);
};

}  // namespace peercached
