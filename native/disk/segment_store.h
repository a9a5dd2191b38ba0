// The disk tier over a log of segments, assembled from the parts of this folder.
//
//   put, remove -> WriteBehind -> Log -> segment files        Maintenance evicts the oldest
//   find, read  -> Index -> Reader -> segment files           Health says when not to try
#pragma once

#include <memory>

#include "disk/disk_tier.h"
#include "disk/health.h"
#include "disk/io.h"

namespace peercached::disk {

// Like open_disk_tier, with a test's I/O and times. `io` must outlive the tier.
std::unique_ptr<DiskTier> open_segment_store(const DiskConfig& config, DiskEvicted on_evicted,
                                             Io& io, HealthTimes times = {});

}  // namespace peercached::disk
