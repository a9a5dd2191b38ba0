#include "engine/paths/get_path.h"

#include <algorithm>

#include "common/gated_copy.h"
#include "engine/paths/digests.h"
#include "engine/paths/get_run.h"
#include "engine/paths/overlap.h"
#include "engine/storage/namespaces.h"

namespace peercached {

namespace {

// Our own disk gets at most 1/kDiskShare of the time left: a peer may have the page, too.
constexpr int kDiskShare = 2;

}  // namespace

void GetPath::Run::from_pool() {
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  for (size_t i = 0; i < pages.size(); ++i) {
    // We cannot copy to a device: such a page comes from a peer, or not at all.
    if (pages[i].status != PageStatus::pending || pages[i].of_device) continue;
    wanted.push_back(digests[i]);
    index.push_back(i);
  }
  if (wanted.empty()) return;
  TraceStep step(context.trace, "pool", wanted.size());
  std::vector<PinnedPage> pins(wanted.size());
  parts.pool.pin(wanted, parent, true, pins);
  copy_out(pins, index, Source::pool);
  parts.pool.unpin(pins);
  if (context.trace != nullptr) {
    const PageStatus status = pages[index[0]].status;
    step.done(status == PageStatus::pending ? PageStatus::absent : status,
              pins[0] ? kSelfHolder : kNoHolder, index.size(), count_ok(index));
  }
}

size_t GetPath::Run::count_ok(std::span<const size_t> index) const {
  return static_cast<size_t>(std::count_if(index.begin(), index.end(), [this](size_t page) {
    return pages[page].status == PageStatus::ok;
  }));
}

void GetPath::Run::copy_out(std::span<const PinnedPage> pins, std::span<const size_t> index,
                            Source source) {
  std::vector<size_t> held;
  uint64_t bytes = 0;
  for (size_t k = 0; k < pins.size(); ++k) {
    if (!pins[k]) continue;
    if (pins[k].length != pages[index[k]].length) {
      pages[index[k]].status = PageStatus::length_mismatch;
      continue;
    }
    held.push_back(k);
    bytes += pins[k].length;
  }
  if (held.empty()) return;
  TraceStep step(context.trace, "copy", held.size());
  parts.crew.run(held.size(), bytes, [&](size_t j) {
    const PinnedPage& pin = pins[held[j]];
    PageRef& page = pages[index[held[j]]];
    const GatedCopy copied = copy_gated(page.memory, pin.payload(), pin.length, page.memory,
                                        *context.gate, context.deadline);
    const bool bad = copied.status == PageStatus::ok && copied.checksum != pin.checksum;
    page.status = bad ? PageStatus::stale : copied.status;
  });
  step.done(pages[index[held[0]]].status, kSelfHolder);

  for (size_t k : held) {
    PageRef& page = pages[index[k]];
    if (page.status == PageStatus::ok) {
      hit(source);
      parts.counters.bytes_got.fetch_add(page.length, std::memory_order_relaxed);
    } else if (page.status == PageStatus::stale) {
      // The slot was pinned, so nobody wrote to it: the memory itself is bad. Never serve it again.
      parts.counters.corrupt_local.fetch_add(1, std::memory_order_relaxed);
      std::vector<RecordRow> rows;
      parts.pool.remove({&digests[index[k]], 1}, rows);
      parts.cold.left_pool(rows);
      page.status = PageStatus::pending;  // our disk or another holder may have it
    }
  }
}

void GetPath::Run::from_disk() {
  if (!parts.cold.enabled()) return;
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (wanted.empty()) return;
    const TimePoint now = Clock::now();
    const Deadline deadline{now + (context.deadline.at - now) / kDiskShare};
    TraceStep step(context.trace, "disk", wanted.size());
    const Promotions promotions = parts.local.promote_now(wanted, deadline);
    copy_out(promotions.pages, index, Source::disk);
    for (size_t k = 0; k < index.size(); ++k) {
      if (disk_gave_nothing(promotions.statuses[k])) not_read(index[k]);
    }
    if (context.trace != nullptr) {
      const PageStatus status = pages[index[0]].status;
      step.done(status == PageStatus::pending ? PageStatus::error : status, kSelfHolder,
                index.size(), count_ok(index));
    }
    wanted.clear();
    index.clear();
    bytes = 0;
  };
  for (size_t i = 0; i < pages.size() && !context.deadline.passed(); ++i) {
    if (pages[i].status != PageStatus::pending || pages[i].of_device) continue;
    const auto page = parts.cold.find(digests[i]);
    if (!page) continue;
    if (page->length != pages[i].length) {
      pages[i].status = PageStatus::length_mismatch;
      continue;
    }
    if (bytes + page->length > parts.promoter.batch_bytes_max()) flush();
    wanted.push_back(digests[i]);
    index.push_back(i);
    bytes += page->length;
  }
  flush();
}

void GetPath::Run::not_read(size_t page) {
  unread.resize(pages.size());
  unread[page] = 1;
}

void GetPath::Run::blame_disks() {
  for (size_t i = 0; i < unread.size(); ++i) {
    PageStatus& status = pages[i].status;
    const bool missed = status == PageStatus::absent || status == PageStatus::stale;
    if (unread[i] != 0 && missed) status = PageStatus::error;
  }
}

void GetPath::Run::hit(Source source) {
  farthest = std::max(farthest, source);
  parts.counters.hits[static_cast<size_t>(source)].fetch_add(1, std::memory_order_relaxed);
  ++looked.found[static_cast<size_t>(source)];
}

void GetPath::Run::count_demand() {
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status == PageStatus::absent) {
      looked.add_evicted(parts.pool.evicted().pools_needed(digests[i]));
    }
  }
  parts.counters.demand.add(looked, {});
  context.ns->demand().add(looked, {});
}

void GetPath::get(const RequestContext& context, std::span<PageRef> pages) {
  const TimePoint started = Clock::now();
  const NamespaceEpoch ns = context.ns->current();
  mark_overlaps(pages);
  const std::vector<Digest> digests = digests_of(ns.key, pages);
  const Digest parent =
      context.parent_key.empty() ? Digest{} : digest_of(ns.key, context.parent_key);
  Run::Shared shared;
  Run run{parts_,
          context,
          shared,
          context.parent_key.empty() ? nullptr : &parent,
          pages,
          digests,
          ns.epoch,
          parts_.running.changes(),
          std::vector<HolderIndex>(pages.size(), kNoHolder)};
  run.looked.asked = count_undecided(pages);
  if (!parts_.serving.on()) {
    for (PageRef& page : pages) {
      if (page.status == PageStatus::pending) page.status = PageStatus::absent;
    }
  }
  run.from_pool();
  run.from_disk();
  run.from_peers();
  run.blame_disks();
  for (PageRef& page : pages) {
    parts_.counters.get[status_index(page.status)].fetch_add(1, std::memory_order_relaxed);
  }
  if (context.gets_only) run.count_demand();
  parts_.latencies.get[static_cast<size_t>(run.farthest)].add_since(started);
}

}  // namespace peercached
