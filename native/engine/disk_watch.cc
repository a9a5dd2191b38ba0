#include "engine/disk_watch.h"

#include <utility>

namespace peercached {

bool DiskWatch::due(TimePoint now) {
  if (now - told_at_ < kTellEvery) return false;
  told_at_ = now;
  return true;
}

// A kind of notice for each: of one kind only the first sentence is kept for some seconds.
void DiskWatch::tell(const DiskStats& stats, Notices& notices) {
  const std::string tier = "the disk tier at " + path_;
  if (std::exchange(state_, stats.state) != stats.state) {
    switch (stats.state) {
      case DiskState::on:
        notices.say("disk is on", tier + " is in use again");
        break;
      case DiskState::read_only:
        notices.say("disk is read-only", stats.why);
        break;
      case DiskState::stalled:
        notices.say("disk is stalled", stats.why);
        break;
    }
  }
  const uint64_t rejected =
      stats.recovery_rejected - std::exchange(rejected_, stats.recovery_rejected);
  if (rejected > 0) {
    notices.say("disk segments", std::to_string(rejected) + " segment files of " + tier +
                                     " were deleted: they are of another daemon or version, "
                                     "destroyed, or cannot be read");
  }
  const uint64_t now_damaged = stats.recovery_corrupt + stats.reads_corrupt + stats.reads_failed;
  const uint64_t damaged = now_damaged - std::exchange(damaged_, now_damaged);
  if (damaged > 0) {
    notices.say("disk damage", std::to_string(damaged) + " pages of " + tier +
                                   " were torn, damaged or not to be read: they are dropped, and "
                                   "count as misses");
  }
}

}  // namespace peercached
