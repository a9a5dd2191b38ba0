// What the daemon's log is told of the disk tier: that it stops writing or answering, that it goes
// on, and what was damaged. One thread at a time.
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

  // Whether it is time for tell(), which is not free.
  bool due(TimePoint now = Clock::now());
  // What has changed since the last call.
  void tell(const DiskStats& stats, Notices& notices);

 private:
  const std::string path_;
  TimePoint told_at_{};
  DiskState state_ = DiskState::on;
  uint64_t write_stops_ = 0, rejected_ = 0, damaged_ = 0;
};

}  // namespace peercached
