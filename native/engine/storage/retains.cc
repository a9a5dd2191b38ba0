#include "engine/storage/retains.h"

#include <algorithm>

namespace peercached {

std::string RetainTable::retain(uint32_t namespace_slot, std::span<const Digest> digests,
                                TimePoint until, uint64_t bytes_max, uint64_t namespace_bytes_max,
                                std::span<PageStatus> statuses) {
  std::vector<KeptPage> pages(digests.size());
  std::lock_guard lock(mutex_);
  if (entries_.size() + digests.size() > pages_max_) {
    std::fill(statuses.begin(), statuses.end(), PageStatus::no_space);
    return std::to_string(entries_.size()) +
           " pages are retained here already: " + std::to_string(pages_max_) +
           " are the limit of a node";
  }
  pool_.retain(namespace_slot, digests, bytes_max, namespace_bytes_max, statuses, pages);
  for (const KeptPage& page : pages) {
    if (!page) continue;
    if (const auto known = entries_.find(page.digest); known != entries_.end())
      due_.erase({known->second.until, page.digest});
    entries_[page.digest] = {page, until};
    due_.emplace(until, page.digest);
  }
  if (std::find(statuses.begin(), statuses.end(), PageStatus::no_space) == statuses.end())
    return "";
  return "hints may retain " + std::to_string(bytes_max) + " bytes here, and " +
         std::to_string(namespace_bytes_max) + " of this namespace (hint_share)";
}

TimePoint RetainTable::expire(TimePoint now) {
  std::vector<KeptPage> ended;
  std::lock_guard lock(mutex_);
  while (!due_.empty() && due_.begin()->first <= now) {
    const auto entry = entries_.find(due_.begin()->second);
    ended.push_back(entry->second.page);
    entries_.erase(entry);
    due_.erase(due_.begin());
  }
  pool_.unretain(ended);
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

}  // namespace peercached
