// Reports changes of the rails to the daemon's log: a rail is down or up, has another address, or
// does not reach some peers. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/notices.h"
#include "transfer/rdma/rail.h"

namespace peercached::rdma {

struct RailNow {
  std::string name;
  std::string why_down;  // empty: it is up
  RailAddress address;
  std::map<std::string, std::string> doubted;  // peers that it does not reach, and why
};

class RailWatch {
 public:
  // Whether notify() is due. Getting the rails' state is not free.
  bool due(TimePoint now = Clock::now());
  // Reports the changes since the last call. The first call reports problems only. All calls must
  // name the same rails.
  void notify(std::vector<RailNow> rails, Notices& notices);

 private:
  std::vector<RailNow> before_;
  TimePoint told_at_{};
};

}  // namespace peercached::rdma
