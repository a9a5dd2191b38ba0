#include "removals/running.h"

namespace peercached {

bool Running::begin(std::span<const Digest> digests) {
  MutexLock lock(mutex_);
  if (removals_.size() + digests.size() > kDigestsMax) return false;
  for (const Digest& digest : digests) {
    ++removals_[digest];
    if (const auto taken = taken_.find(digest); taken != taken_.end()) taken->second.doomed = true;
  }
  running_.store(removals_.size());
  changes_.fetch_add(1);
  return true;
}

void Running::end(std::span<const Digest> digests) {
  MutexLock lock(mutex_);
  for (const Digest& digest : digests) {
    const auto found = removals_.find(digest);
    if (found != removals_.end() && --found->second == 0) removals_.erase(found);
  }
  running_.store(removals_.size());
  changes_.fetch_add(1);
}

bool Running::has(const Digest& digest) const {
  if (!any()) return false;
  MutexLock lock(mutex_);
  return removals_.contains(digest);
}

Running::Taking::Taking(Running& running, std::span<const Digest> digests)
    : running_(running), digests_(digests.begin(), digests.end()) {
  MutexLock lock(running_.mutex_);
  for (const Digest& digest : digests_) {
    Taken& taken = running_.taken_[digest];
    ++taken.takers;
    taken.doomed |= running_.removals_.contains(digest);
  }
}

Running::Taking::~Taking() {
  MutexLock lock(running_.mutex_);
  for (const Digest& digest : digests_) {
    const auto found = running_.taken_.find(digest);
    if (--found->second.takers == 0) running_.taken_.erase(found);
  }
}

bool Running::Taking::doomed(const Digest& digest) const {
  MutexLock lock(running_.mutex_);
  const auto found = running_.taken_.find(digest);
  return found == running_.taken_.end() || found->second.doomed;
}

}  // namespace peercached
