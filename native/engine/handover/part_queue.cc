#include "engine/handover/part_queue.h"

#include <map>
#include <set>
#include <tuple>

namespace peercached {

void PartQueue::add(const Digest& namespace_id, uint64_t epoch, std::span<const RecordRow> rows,
                    uint64_t learnt_at) {
  std::lock_guard lock(mutex_);
  for (const RecordRow& row : rows) {
    if (pages_.size() == pages_max_) return;
    pages_.push_back({namespace_id, epoch, row, learnt_at});
  }
}

bool PartQueue::any() const {
  std::lock_guard lock(mutex_);
  return !pages_.empty();
}

std::vector<HolderIndex> PartQueue::holders() const {
  std::set<HolderIndex> found;
  std::lock_guard lock(mutex_);
  for (const Page& page : pages_) found.insert(page.row.holder);
  return {found.begin(), found.end()};
}

std::vector<std::pair<HolderIndex, Handover>> PartQueue::take() {
  std::vector<Page> pages;
  {
    std::lock_guard lock(mutex_);
    pages.swap(pages_);
  }
  std::vector<std::pair<HolderIndex, Handover>> parts;
  std::map<std::tuple<HolderIndex, Digest, uint64_t, uint64_t>, OpenPart> open;
  for (const Page& page : pages) {
    if (page.row.length > kHandoverPageBytesMax) continue;
    OpenPart& into = open[{page.row.holder, page.namespace_id, page.epoch, page.learnt_at}];
    if (!into.has_room(page.row)) parts.emplace_back(page.row.holder, into.close());
    into.part.namespace_id = page.namespace_id;
    into.part.epoch = page.epoch;
    into.part.learnt_at = page.learnt_at;
    into.add(page.row);
  }
  for (auto& [of, last] : open) parts.emplace_back(std::get<HolderIndex>(of), last.close());
  return parts;
}

}  // namespace peercached
