// Maps the pages of new regions that the worker has touched, in the background. Otherwise the first
// copy of each page meets page faults, and takes twice as long.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "common/mutex.h"
#include "ipc/attachment.h"

namespace peercached::ipc {

class MapAhead {
 public:
  MapAhead();
  ~MapAhead();
  MapAhead(const MapAhead&) = delete;
  MapAhead& operator=(const MapAhead&) = delete;

  void add(const std::shared_ptr<Region>& region);

 private:
  struct Rest {
    std::weak_ptr<Region> region;
    uint64_t from = 0;
    bool whole = true;  // no page was untouched so far
  };
  void run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<Rest> waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace peercached::ipc
