// Reports changes of the disk tier to the daemon's log: it stopped writing or answering, it works
// again, or it found damage. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/notices.h"
#include "disk/disk_tier.h"

namespace peercached {

class DiskWatch {
 public:
  static constexpr std::chrono::seconds kTellEvery{1};

  explicit DiskWatch(std::string path) : path_(std::move(path)) {}

  // Whether notify() is due. Getting its statistics is not free.
  bool due(TimePoint now = Clock::now());
  // Reports the changes since the last call.
  void notify(const DiskStats& stats, Notices& notices);

 private:
  const std::string path_;
  TimePoint told_at_{};
  DiskState state_ = DiskState::on;
  uint64_t write_stops_ = 0, rejected_ = 0, damaged_ = 0;
};

}  // namespace peercached
