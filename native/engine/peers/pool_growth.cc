#include "engine/peers/pool_growth.h"

#include <stdexcept>

#include "common/thread_name.h"

namespace peercached {

PoolGrowth::PoolGrowth(Pool& pool, Transports& transports, Notices& notices)
    : pool_(pool), transports_(transports), notices_(notices) {
  if (pool.ready_bytes() < pool.size_bytes())
    thread_ = named_thread("pool growth", [this] { run(); });
}

PoolGrowth::~PoolGrowth() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void PoolGrowth::run() {
  try {
    while (!stopping_) {
      const auto bytes = pool_.touch_more();
      if (!bytes) return;
      transports_.pool_grew(*bytes);
      pool_.grow_to(*bytes);
    }
  } catch (const std::runtime_error& error) {
    pool_.stop_growing(error.what());
    notices_.say("pool growth",
                 std::string("the pool stays smaller than pool_size: ") + error.what());
  }
}

}  // namespace peercached
