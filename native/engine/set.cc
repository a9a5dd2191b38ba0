// set: reserve -> copy -> commit -> publish -> answer.
//
// A batch goes through in pieces, so that a batch larger than the pool's free space does not pin it
// whole. A piece stays pinned until the owners have its records, or they are queued. So a
// withdrawal by eviction can never overtake them. Pages removed meanwhile are withdrawn once more,
// behind their records.

#include <algorithm>
#include <deque>

#include "engine/digests.h"
#include "engine/engine.h"
#include "engine/gated_copy.h"

namespace peercached {

namespace {

constexpr uint64_t kPieceBytes = 8 << 20;
constexpr size_t kPiecePages = 4096;
constexpr unsigned kBusyRetriesMax = 8;

}  // namespace

// One piece of a batch, from reservation to the queueing of its records.
struct Engine::SetRun {
  Engine& engine;
  const RequestContext& context;
  const NamespaceEpoch ns;

  std::deque<ControlQueue::Question> questions{};

  std::vector<PageRequest> requests{};
  std::vector<Reservation> reservations{};
  std::vector<PinnedPage> committing{}, unpublished{}, aborting{}, pinned{};
  std::vector<uint64_t> checksums{};
  std::vector<RecordRow> rows{};

  // Returns the indices of pages that another worker is setting right now.
  std::vector<size_t> store(std::span<PageRef> pages, std::span<const Digest> digests,
                            std::span<const size_t> chosen, const Digest* parent);
  bool drop_removed(std::span<PageRef> pages, std::span<const Digest> digests,
                    std::span<const size_t> chosen);
  void publish(bool in_frames);
  void wait_published();
};

std::vector<size_t> Engine::SetRun::store(std::span<PageRef> pages, std::span<const Digest> digests,
                                          std::span<const size_t> chosen, const Digest* parent) {
  const size_t count = chosen.size();
  requests.clear();
  for (size_t i : chosen) requests.push_back({digests[i], pages[i].length});
  reservations.assign(count, {});
  engine.storage_.pool().reserve(requests, parent, {ns.pool_slot, context.ns->id(), ns.epoch},
                                 reservations);

  uint64_t bytes = 0;
  std::vector<size_t> to_copy, busy;
  for (size_t k = 0; k < count; ++k) {
    PageRef& page = pages[chosen[k]];
    switch (reservations[k].outcome) {
      case ReserveOutcome::reserved:
        to_copy.push_back(k);
        bytes += page.length;
        break;
      case ReserveOutcome::held:
        page.status = PageStatus::ok;
        pinned.push_back(reservations[k].page);
        if (!engine.storage_.pool().is_published(reservations[k].page)) {
          unpublished.push_back(reservations[k].page);
        }
        engine.counters_.set_held.fetch_add(1, std::memory_order_relaxed);
        break;
      case ReserveOutcome::busy:
        busy.push_back(chosen[k]);
        break;
      case ReserveOutcome::no_space:
        page.status = PageStatus::no_space;
        break;
      case ReserveOutcome::too_large:
        page.status = PageStatus::too_large;
        break;
    }
  }

  std::vector<uint64_t> sums(to_copy.size());
  std::vector<PageStatus> copied(to_copy.size());
  engine.crew_.run(to_copy.size(), bytes, [&](size_t j) {
    const size_t k = to_copy[j];
    const PageRef& page = pages[chosen[k]];
    // A worker that gave up on us fills its pages anew. A copy made then may be torn, and its
    // checksum would still be right.
    const GatedCopy copy = copy_gated(reservations[k].page.payload(), page.memory, page.length,
                                      page.memory, *context.gate, context.deadline);
    const bool torn = copy.status == PageStatus::ok && context.gate->fenced();
    copied[j] = torn ? PageStatus::deadline : copy.status;
    sums[j] = copy.checksum;
  });

  for (size_t j = 0; j < to_copy.size(); ++j) {
    const PinnedPage& slot = reservations[to_copy[j]].page;
    PageRef& page = pages[chosen[to_copy[j]]];
    page.status = copied[j];
    if (page.status == PageStatus::ok) {
      committing.push_back(slot);
      committing.back().checksum = sums[j];
      checksums.push_back(sums[j]);
      engine.counters_.bytes_set.fetch_add(page.length, std::memory_order_relaxed);
    } else {
      aborting.push_back(slot);
    }
  }
  engine.storage_.pool().abort(aborting);
  const UnderWay::Work commit(engine.publisher_->commits());
  rows.resize(committing.size());
  engine.storage_.pool().commit(committing, checksums, rows);
  engine.publisher_->feed().append(rows);
  const bool dropped = drop_removed(pages, digests, chosen);
  if (!unpublished.empty()) {
    rows.resize(committing.size() + unpublished.size());
    engine.storage_.pool().rows_of(unpublished, std::span(rows).subspan(committing.size()));
  }
  publish(!dropped && unpublished.empty());
  pinned.insert(pinned.end(), committing.begin(), committing.end());
  rows.clear();
  engine.storage_.pool().withdrawals_of(pinned, rows);
  engine.storage_.cold().left_pool(rows);
  engine.storage_.cold().write_behind(context.ns->id(), ns.epoch, pinned);
  for (auto* list : {&committing, &unpublished, &aborting, &pinned}) list->clear();
  checksums.clear();
  rows.clear();
  // The namespace was cleared meanwhile. Nobody could ever find pages that were committed after the
  // sweep, and they would take room until evicted. The epoch rises before the sweep begins, so a
  // commit behind the sweep sees the new epoch here.
  if (context.ns->current().epoch != ns.epoch) engine.janitor_.sweep_namespace(ns.pool_slot);
  return busy;
}

void Engine::SetRun::publish(bool in_frames) {
  if (rows.empty() || engine.publisher_->store_alone(rows)) return;
  // Frames do not wait for Python, so withdrawals of pages that sets evict could pile up in its
  // queue. If it is behind, sets take their place in that queue.
  in_frames = in_frames && !engine.control_.behind();
  if (in_frames && engine.publisher_->send_in_frames(rows, context.deadline)) return;
  engine.counters_.publishes_passed_on.fetch_add(1, std::memory_order_relaxed);
  questions.emplace_back(engine.control_, EventKind::publish, std::as_bytes(std::span(rows)),
                         context.deadline);
}

// Drops pages with a removal that began before the commit, and so has not seen them. They are
// withdrawn behind their records. Returns whether there were any.
bool Engine::SetRun::drop_removed(std::span<PageRef> pages, std::span<const Digest> digests,
                                  std::span<const size_t> chosen) {
  if (!engine.running_.any()) return false;
  std::vector<Digest> removed;
  for (size_t i : chosen) {
    if (pages[i].status != PageStatus::ok || !engine.running_.has(digests[i])) continue;
    pages[i].status = PageStatus::removing;
    removed.push_back(digests[i]);
  }
  if (!removed.empty()) engine.storage_.cold().drop(removed);
  return !removed.empty();
}

void Engine::SetRun::wait_published() {
  for (auto& question : questions) {
    // All owners that could be told were told. The page is here and counts as set in any case.
    if (!question.wait()) engine.counters_.unpublished.fetch_add(1, std::memory_order_relaxed);
  }
  questions.clear();
}

void Engine::set(const RequestContext& context, std::span<PageRef> pages) {
  const Timed timed(latencies_.set);
  SetRun run{*this, context, context.ns->current()};
  const std::vector<Digest> digests = digests_of(run.ns.key, pages);
  mark_duplicates(digests, pages);
  if (!taking_.load(std::memory_order_acquire)) {
    for (PageRef& page : pages) {
      if (page.status == PageStatus::pending) page.status = PageStatus::draining;
    }
  }
  if (running_.any()) {
    for (size_t i = 0; i < pages.size(); ++i) {
      if (pages[i].status == PageStatus::pending && running_.has(digests[i]))
        pages[i].status = PageStatus::removing;
    }
  }
  const uint64_t piece_bytes =
      std::clamp<uint64_t>(storage_.pool().size_bytes() / 8, 1, kPieceBytes);

  const Digest parent_digest =
      context.parent_key.empty() ? Digest{} : digest_of(run.ns.key, context.parent_key);
  const Digest* parent = context.parent_key.empty() ? nullptr : &parent_digest;
  std::vector<size_t> piece, busy;
  uint64_t bytes = 0;
  auto flush = [&] {
    if (piece.empty()) return;
    auto more = run.store(pages, digests, piece, parent);
    busy.insert(busy.end(), more.begin(), more.end());
    parent = &digests[piece.back()];
    piece.clear();
    bytes = 0;
  };
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status != PageStatus::pending) continue;
    if (pages[i].of_device) {  // we cannot copy from a device
      pages[i].status = PageStatus::bad_region;
      continue;
    }
    if (context.deadline.passed()) {
      pages[i].status = PageStatus::deadline;
      continue;
    }
    piece.push_back(i);
    bytes += pages[i].length;
    if (bytes >= piece_bytes || piece.size() >= kPiecePages) flush();
  }
  flush();

  // Another worker was setting these pages. Ours are answered only when theirs are committed.
  for (size_t i : busy) {
    for (unsigned attempt = 0; pages[i].status == PageStatus::pending; ++attempt) {
      if (attempt == kBusyRetriesMax ||
          !storage_.pool().wait_settled(digests[i], context.deadline)) {
        pages[i].status = PageStatus::deadline;
        break;
      }
      const size_t one[] = {i};
      run.store(pages, digests, one, i == 0 ? nullptr : &digests[i - 1]);
    }
  }
  run.wait_published();
  for (const PageRef& page : pages) {
    counters_.set[status_index(page.status)].fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace peercached
