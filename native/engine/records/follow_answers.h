// Answers nodes that follow our records.
#pragma once

#include <cstdint>
#include <functional>

#include "common/types.h"
#include "engine/records/directory.h"
#include "engine/records/record_feed.h"
#include "engine/storage/cold_pages.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/life_signs.h"

namespace peercached {

struct FollowAnswers {
  RecordFeed& feed;
  tcp::LifeSigns& signs;
  const ColdPages& cold;
  const Directory& directory;

  // Tells a follower how our records changed behind its position. False: `tell` gave up, or the
  // feed has no answer.
  bool operator()(Incarnation follower, const tcp::LifeSign& sign, const FeedQuestion& question,
                  uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell) const;
};

}  // namespace peercached
