// Answers nodes that follow our records, to keep copies of them.
#pragma once

#include <cstdint>
#include <functional>

#include "common/types.h"
#include "engine/cold_pages.h"
#include "engine/record_feed.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/life_signs.h"

namespace peercached {

struct FollowAnswers {
  RecordFeed& feed;
  tcp::LifeSigns& signs;
  const ColdPages& cold;

  // Tells a follower how our records changed behind `position`. False: `tell` gave up, or the feed
  // is closed.
  bool operator()(Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                  uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell) const;
};

}  // namespace peercached
