// What the daemon's log is told of the rails: that one is down or up, has another address, and
// which peers it does not reach. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/notices.h"
#include "transfer/rdma/rail.h"

namespace peercached {

struct RailNow {
  std::string name;
  std::string why_down;  // empty: it is up
  rdma::RailAddress address;
  std::map<std::string, std::string> doubted;  // by peer: why
};

class RailWatch {
 public:
  // Whether it is time for tell(), which is not free.
  bool due(TimePoint now = Clock::now());
  // What has changed since the last call; of the first one only what is amiss. Always the same
  // rails.
  void tell(std::vector<RailNow> rails, Notices& notices);

 private:
  std::vector<RailNow> before_;
  TimePoint told_at_{};
};

}  // namespace peercached
