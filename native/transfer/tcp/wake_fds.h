// Eventfds for the threads of a read to wake each other from poll(), kept for the next read.
#pragma once

#include <mutex>
#include <vector>

#include "transfer/tcp/socket.h"

namespace peercached::tcp {

class WakeFds {
 public:
  int take();  // -1: out of descriptors
  void give_back(int fd);

 private:
  std::mutex mutex_;
  std::vector<Socket> all_;
  std::vector<int> free_;
};

}  // namespace peercached::tcp
