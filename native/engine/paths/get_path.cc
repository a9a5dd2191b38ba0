#include "engine/paths/get_path.h"

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
  peers.from_peers(get);
  get.blame_disks();
  count(context, get);
  latencies.get[static_cast<size_t>(get.farthest)].add_since(started);
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
