#include "engine/paths/get_store.h"

#include <algorithm>
#include <vector>

#include "engine/control/events.h"

namespace peercached {

namespace {

// Asked for at a time. The control plane reads such a part in several requests at once.
constexpr uint64_t kPartBytes = 64 << 20;
constexpr size_t kPartPages = 4096;
// A part takes at most 1/kPoolShare of the pool, so its last pages do not evict its first.
constexpr uint64_t kPoolShare = 8;

}  // namespace

void GetStore::from_store(GetPages& get) const {
  if (objects.empty()) return;
  const uint64_t part_bytes = std::min(kPartBytes, here.pool.size_bytes() / kPoolShare);
  std::vector<size_t> part;
  uint64_t bytes = 0;
  for (size_t i = 0; i < get.pages.size() && !get.context.deadline.passed(); ++i) {
    const PageRef& page = get.pages[i];
    const bool missed = page.status == PageStatus::absent || page.status == PageStatus::stale;
    if (!missed || page.of_device) continue;
    const auto place = objects.find(get.digests[i]);
    if (!place || place->entry.length != page.length) continue;
    if (!part.empty() && (bytes + page.length > part_bytes || part.size() == kPartPages)) {
      fetch(get, part);
      part.clear();
      bytes = 0;
    }
    part.push_back(i);
    bytes += page.length;
  }
  if (!part.empty() && !get.context.deadline.passed()) fetch(get, part);
}

void GetStore::fetch(GetPages& get, std::span<const size_t> index) const {
  TraceStep step(get.context.trace, "store", index.size());
  std::vector<Digest> wanted;
  uint64_t bytes = 0, came_bytes = 0;
  for (const size_t i : index) {
    wanted.push_back(get.digests[i]);
    bytes += get.pages[i].length;
  }
  LoadTimes::Load load(here.times, {Source::store}, bytes);
  const TimePoint began = Clock::now();
  // Without an answer some of them may have come, too.
  const auto answer = control.ask(EventKind::fetch, payload_of(wanted), get.context.deadline);
  for (const size_t i : index) get.pages[i].status = PageStatus::pending;
  here.from_pool(get, Source::store);
  size_t came = 0;
  for (const size_t i : index) {
    PageStatus& status = get.pages[i].status;
    if (status == PageStatus::pending) status = answer ? PageStatus::absent : PageStatus::deadline;
    came += status == PageStatus::ok ? 1 : 0;
    came_bytes += status == PageStatus::ok ? get.pages[i].length : 0;
  }
  if (came_bytes == bytes || get.context.deadline.passed())
    load.took(came_bytes, Clock::now() - began, Clock::now());
  step.done(came != 0 ? PageStatus::ok : get.pages[index[0]].status, kSelfHolder, index.size(),
            came);
}

}  // namespace peercached
