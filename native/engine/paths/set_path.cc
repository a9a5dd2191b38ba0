#include "engine/paths/set_path.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/paths/request_pages.h"

namespace peercached {

namespace {

constexpr uint64_t kPieceBytes = 8 << 20;
constexpr size_t kPiecePages = 4096;
constexpr unsigned kBusyRetriesMax = 8;
// Readers unpin a page when they have copied or sent it. A hold or a hung disk may pin it for long,
// and a set waits for neither.
constexpr auto kUnpinnedWithin = std::chrono::milliseconds(200);

}  // namespace

void SetPath::set(const RequestContext& context, std::span<PageRef> pages) const {
  const Timed timed(latencies.set);
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, pages);
  mark_duplicates(digests, pages);
  SetPages set{context, ns, pages, digests};
  refuse(set);
  if (picture != nullptr)
    picture->named({context.ns->id(), ns.epoch, context.ns->name()}, digests, context.names);
  const Digest parent =
      context.parent_key.empty() ? Digest{} : digest_of(ns.key, context.parent_key);
  store_in_pieces(set, context.parent_key.empty() ? nullptr : &parent);
  store_busy(set);
  wait_told(set);
  for (const PageRef& page : pages) {
    pieces.counters.set[status_index(page.status)].add();
  }
}

void SetPath::refuse(SetPages& set) const {
  const bool taking = serving.taking();
  const bool removals = pieces.running.any();
  if (taking && !removals) return;
  for (size_t i = 0; i < set.pages.size(); ++i) {
    PageStatus& status = set.pages[i].status;
    if (status != PageStatus::pending) continue;
    if (!taking) {
      status = PageStatus::draining;
    } else if (pieces.running.has(set.digests[i])) {
      status = PageStatus::removing;
    }
  }
}

void SetPath::store_in_pieces(SetPages& set, const Digest* parent) const {
  const uint64_t piece_bytes = std::clamp<uint64_t>(pieces.pool.size_bytes() / 8, 1, kPieceBytes);
  std::vector<size_t> chosen;
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (chosen.empty()) return;
    store(set, chosen, parent);
    parent = &set.digests[chosen.back()];
    chosen.clear();
    bytes = 0;
  };
  for (size_t i = 0; i < set.pages.size(); ++i) {
    if (set.pages[i].status != PageStatus::pending) continue;
    if (set.pages[i].of_device) {  // we cannot copy from a device
      set.pages[i].status = PageStatus::bad_region;
      continue;
    }
    if (set.context.deadline.passed()) {
      set.pages[i].status = PageStatus::deadline;
      continue;
    }
    chosen.push_back(i);
    bytes += set.pages[i].length;
    if (bytes >= piece_bytes || chosen.size() >= kPiecePages) flush();
  }
  flush();
}

// Another worker was setting these pages, and ours are answered only when theirs are committed. Or
// somebody still reads a page of the same key with another length.
void SetPath::store_busy(SetPages& set) const {
  const Deadline unpinned_by{std::min(set.context.deadline.at, Clock::now() + kUnpinnedWithin)};
  for (const size_t i : std::exchange(set.busy, {})) {
    for (unsigned attempt = 0; set.pages[i].status == PageStatus::pending; ++attempt) {
      if (attempt == kBusyRetriesMax ||
          !pieces.pool.wait_settled(set.digests[i], set.context.deadline) ||
          !pieces.pool.wait_replaceable(set.digests[i], set.pages[i].length, unpinned_by)) {
        set.pages[i].status = PageStatus::deadline;
        break;
      }
      store(set, {&i, 1}, i == 0 ? nullptr : &set.digests[i - 1]);
    }
  }
}

void SetPath::store(SetPages& set, std::span<const size_t> chosen, const Digest* parent) const {
  pieces.store(set, chosen, parent);
  // The namespace was cleared meanwhile. Nobody could ever find pages that were committed after the
  // sweep, and they would take room until evicted. The epoch rises before the sweep begins, so a
  // commit behind the sweep sees the new epoch here.
  if (set.context.ns->current().epoch != set.ns.epoch) janitor.sweep_namespace(set.ns.pool_slot);
}

void SetPath::wait_told(const SetPages& set) const {
  std::vector<Digest> stored;
  for (size_t i = 0; i < set.pages.size(); ++i) {
    if (set.pages[i].status == PageStatus::ok) stored.push_back(set.digests[i]);
  }
  if (stored.empty() || pieces.publisher.wait_told(stored, set.context.deadline)) return;
  // All owners that could be told were told. The page is here and counts as set in any case.
  pieces.counters.unpublished.add();
}

}  // namespace peercached
