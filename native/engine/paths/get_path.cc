#include "engine/paths/get_path.h"

#include <new>
#include <stdexcept>
#include <vector>

#include "engine/paths/request_pages.h"
#include "engine/storage/namespaces.h"

namespace peercached {

void GetPath::get(const RequestContext& context, std::span<PageRef> pages) const {
  const TimePoint started = Clock::now();
  const NamespaceEpoch ns = context.ns->current();
  mark_overlaps(pages);
  const std::vector<Digest> digests = digests_of(ns.key, pages);
  const bool has_parent = !context.parent_key.empty();
  const Digest parent = has_parent ? digest_of(ns.key, context.parent_key) : Digest{};
  GetPages::Shared shared;
  shared.device_pages_left = pages.size();
  GetPages get{context, shared,  counters, locations,        has_parent ? &parent : nullptr,
               pages,   digests, ns.epoch, running.changes()};
  get.looked.asked = count_undecided(pages);
  if (!serving.on()) {
    for (PageRef& page : pages) {
      if (page.status == PageStatus::pending) page.status = PageStatus::absent;
    }
  }
  here.from_pool(get);
  here.from_disk(get);
  if (pages.empty() || pages[0].layout == nullptr)
    peers.from_peers(get);
  else
    through_bounce(get);
  if (serving.on()) store.from_store(get);
  get.blame_disks();
  count(context, get);
  latencies.get[static_cast<size_t>(get.farthest)].add_since(started);
}

void GetPath::through_bounce(GetPages& get) const {
  std::vector<size_t> left;
  for (size_t i = 0; i < get.pages.size(); ++i) {
    PageStatus& status = get.pages[i].status;
    if (status != PageStatus::pending) continue;
    status =
        get.pages[i].length > Bounce::kSlotBytes ? PageStatus::too_large : PageStatus::deadline;
    if (status == PageStatus::deadline) left.push_back(i);
  }
  for (size_t next = 0; next < left.size();) {
    const device::DeviceId& device = get.pages[left[next]].layout->rows[0].memory->device();
    std::optional<Bounce::Slot> slot = bounce.take(device, get.context);
    if (!slot) return;
    // Pending are only the pages of this round.
    for (uint64_t used = 0; next < left.size(); ++next) {
      PageRef& page = get.pages[left[next]];
      if (used + page.length > Bounce::kSlotBytes) break;
      page.memory = slot->base() + used;
      page.status = PageStatus::pending;
      used += page.length;
    }
    get.trust = Trust::cached;
    peers.from_peers(get);
  }
}

void GetPath::count(const RequestContext& context, GetPages& get) const {
  for (size_t i = 0; i < get.pages.size(); ++i) {
    const PageStatus status = get.pages[i].status;
    counters.get[status_index(status)].add();
    if (context.gets_only && status == PageStatus::absent)
      get.looked.add_evicted(here.pool.evicted().pools_needed(get.digests[i]));
  }
  if (!context.gets_only) return;
  counters.demand.add(get.looked, {});
  context.ns->demand().add(get.looked, {});
}

}  // namespace peercached
