#include "engine/storage/disk_watch.h"

#include <utility>

namespace peercached {

bool DiskWatch::due(TimePoint now) {
  if (now - told_at_ < kTellEvery) return false;
  told_at_ = now;
  return true;
}

// Each event has its own kind of notice: of one kind only the first sentence is kept for some
// seconds.
void DiskWatch::notify(const DiskStats& stats, Notices& notices) {
  const std::string tier = "the disk tier at " + path_;
  // The tier may stop writing and go on between two looks: the count shows it, the state does not.
  const bool stopped = std::exchange(write_stops_, stats.write_stops) != stats.write_stops;
  const bool changed = std::exchange(state_, stats.state) != stats.state;
  if ((changed || stopped) && stats.state == DiskState::on) {
    const std::string after =
        stopped ? "; for a moment it took no new pages: " + stats.why_stopped : "";
    notices.say("disk is on", tier + " is in use again" + after);
  } else if (stopped) {
    notices.say("disk is read-only", tier + " takes no new pages: " + stats.why_stopped +
                                         " (stored pages are still read; the daemon tries again)");
  } else if (changed && stats.state == DiskState::stalled) {
    notices.say("disk is stalled", tier + " does not answer: " + stats.why +
                                       "; look into the kernel's log (the tier is used again as "
                                       "soon as it answers)");
  }
  const uint64_t rejected =
      stats.recovery.rejected - std::exchange(rejected_, stats.recovery.rejected);
  if (rejected > 0) {
    notices.say("disk segments", "deleted " + std::to_string(rejected) + " segment files of " +
                                     tier +
                                     ": from another daemon or version, damaged, or unreadable");
  }
  const uint64_t now_damaged = stats.recovery.corrupt + stats.reads_corrupt + stats.reads_failed;
  const uint64_t damaged = now_damaged - std::exchange(damaged_, now_damaged);
  if (damaged > 0) {
    notices.say("disk damage", "dropped " + std::to_string(damaged) +
                                   " damaged or unreadable pages of " + tier +
                                   " (they are misses)");
  }
}

}  // namespace peercached
