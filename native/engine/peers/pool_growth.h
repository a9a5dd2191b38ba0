// Touches the memory of a large pool while the daemon serves, and registers it with the transports.
// Peers can read each part before the first page is there.
#pragma once

#include <atomic>
#include <thread>

#include "common/notices.h"
#include "engine/peers/transports.h"
#include "pool/pool.h"

namespace peercached {

class PoolGrowth {
 public:
  PoolGrowth(Pool& pool, Transports& transports, Notices& notices);
  ~PoolGrowth();
  PoolGrowth(const PoolGrowth&) = delete;
  PoolGrowth& operator=(const PoolGrowth&) = delete;

 private:
  void run();

  Pool& pool_;
  Transports& transports_;
  Notices& notices_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace peercached
