#include "engine/paths/set_path.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/gated_copy.h"
#include "engine/paths/digests.h"
#include "engine/storage/namespaces.h"

namespace peercached {

namespace {

constexpr uint64_t kPieceBytes = 8 << 20;
constexpr size_t kPiecePages = 4096;
constexpr unsigned kBusyRetriesMax = 8;
// Readers unpin a page when they have copied or sent it. A hold or a hung disk may pin it for long,
// and a set waits for neither.
constexpr auto kUnpinnedWithin = std::chrono::milliseconds(200);

}  // namespace

struct SetPath::Run {
  const Parts& parts;
  const RequestContext& context;
  const NamespaceEpoch& ns;
  std::span<PageRef> pages;
  std::span<const Digest> digests;

  std::vector<size_t> busy{};  // pages that another worker is setting right now
  // Of the piece at hand. chosen[k] is the page of reservations[k].
  std::span<const size_t> chosen{};
  std::vector<PageRequest> requests{};
  std::vector<Reservation> reservations{};
  std::vector<size_t> reserved{};  // by place in `reservations`
  std::vector<PinnedPage> committing{}, aborting{}, pinned{};
  std::vector<Digest> committing_digests{};
  std::vector<RecordRow> rows{};

  void refuse();
  void store_in_pieces(const Digest* parent);
  void store_busy();
  void wait_told();

  // One piece.
  void store(std::span<const size_t> piece, const Digest* parent);
  void reserve(const Digest* parent);
  void fill();
  // By place in `committing`: 1 if another node has the page in its pool.
  std::vector<uint8_t> held_elsewhere() const;
  void commit();
  void drop_removed();
};

void SetPath::Run::refuse() {
  const bool taking = parts.taking.load(std::memory_order_acquire);
  const bool removals = parts.running.any();
  if (taking && !removals) return;
  for (size_t i = 0; i < pages.size(); ++i) {
    PageStatus& status = pages[i].status;
    if (status != PageStatus::pending) continue;
    if (!taking) {
      status = PageStatus::draining;
    } else if (parts.running.has(digests[i])) {
      status = PageStatus::removing;
    }
  }
}

void SetPath::Run::store_in_pieces(const Digest* parent) {
  const uint64_t piece_bytes = std::clamp<uint64_t>(parts.pool.size_bytes() / 8, 1, kPieceBytes);
  std::vector<size_t> piece;
  uint64_t bytes = 0;
  const auto flush = [&] {
    if (piece.empty()) return;
    store(piece, parent);
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
}

// Another worker was setting these pages, and ours are answered only when theirs are committed. Or
// somebody still reads a page of the same key with another length.
void SetPath::Run::store_busy() {
  const Deadline unpinned_by{std::min(context.deadline.at, Clock::now() + kUnpinnedWithin)};
  for (const size_t i : std::exchange(busy, {})) {
    for (unsigned attempt = 0; pages[i].status == PageStatus::pending; ++attempt) {
      if (attempt == kBusyRetriesMax || !parts.pool.wait_settled(digests[i], context.deadline) ||
          !parts.pool.wait_replaceable(digests[i], pages[i].length, unpinned_by)) {
        pages[i].status = PageStatus::deadline;
        break;
      }
      store({&i, 1}, i == 0 ? nullptr : &digests[i - 1]);
    }
  }
}

void SetPath::Run::wait_told() {
  std::vector<Digest> stored;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status == PageStatus::ok) stored.push_back(digests[i]);
  }
  if (stored.empty() || parts.publisher.wait_told(stored, context.deadline)) return;
  // All owners that could be told were told. The page is here and counts as set in any case.
  parts.counters.unpublished.fetch_add(1, std::memory_order_relaxed);
}

void SetPath::Run::store(std::span<const size_t> piece, const Digest* parent) {
  chosen = piece;
  reserve(parent);
  fill();
  commit();
  for (auto* list : {&committing, &aborting, &pinned}) list->clear();
  committing_digests.clear();
  rows.clear();
  // The namespace was cleared meanwhile. Nobody could ever find pages that were committed after the
  // sweep, and they would take room until evicted. The epoch rises before the sweep begins, so a
  // commit behind the sweep sees the new epoch here.
  if (context.ns->current().epoch != ns.epoch) parts.janitor.sweep_namespace(ns.pool_slot);
}

void SetPath::Run::reserve(const Digest* parent) {
  requests.clear();
  for (size_t i : chosen) requests.push_back({digests[i], pages[i].length});
  reservations.assign(chosen.size(), {});
  parts.pool.reserve(requests, parent, {ns.pool_slot, context.ns->id(), ns.epoch}, reservations);

  reserved.clear();
  for (size_t k = 0; k < chosen.size(); ++k) {
    PageRef& page = pages[chosen[k]];
    switch (reservations[k].outcome) {
      case ReserveOutcome::reserved:
        reserved.push_back(k);
        break;
      case ReserveOutcome::held:
        page.status = PageStatus::ok;
        pinned.push_back(reservations[k].page);
        parts.counters.set_held.fetch_add(1, std::memory_order_relaxed);
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
}

void SetPath::Run::fill() {
  uint64_t bytes = 0;
  for (size_t k : reserved) bytes += pages[chosen[k]].length;
  std::vector<uint64_t> sums(reserved.size());
  std::vector<PageStatus> copied(reserved.size());
  parts.crew.run(reserved.size(), bytes, [&](size_t j) {
    const size_t k = reserved[j];
    const PageRef& page = pages[chosen[k]];
    // A worker that gave up on us fills its pages anew. A copy made then may be torn, and its
    // checksum would still be right.
    const GatedCopy copy = copy_gated(reservations[k].page.payload(), page.memory, page.length,
                                      page.memory, *context.gate, context.deadline);
    const bool torn = copy.status == PageStatus::ok && context.gate->fenced();
    copied[j] = torn ? PageStatus::deadline : copy.status;
    sums[j] = copy.checksum;
  });

  for (size_t j = 0; j < reserved.size(); ++j) {
    const PinnedPage& slot = reservations[reserved[j]].page;
    PageRef& page = pages[chosen[reserved[j]]];
    page.status = copied[j];
    if (page.status == PageStatus::ok) {
      committing.push_back(slot);
      committing.back().checksum = sums[j];
      committing_digests.push_back(digests[chosen[reserved[j]]]);
      parts.counters.bytes_set.fetch_add(page.length, std::memory_order_relaxed);
    } else {
      aborting.push_back(slot);
    }
  }
}

std::vector<uint8_t> SetPath::Run::held_elsewhere() const {
  if (committing.empty()) return {};
  std::vector<RecordRow> rows_elsewhere;
  parts.records.find(committing_digests, rows_elsewhere);
  if (rows_elsewhere.empty()) return {};
  std::unordered_map<Digest, uint32_t, DigestHash> lengths;
  for (const RecordRow& row : rows_elsewhere) {
    if (row.flags & kRecordResident && parts.nodes.usable(row.holder)) {
      lengths[row.digest] = row.length;
    }
  }
  std::vector<uint8_t> elsewhere(committing.size(), 0);
  for (size_t i = 0; i < committing.size(); ++i) {
    const auto length = lengths.find(committing_digests[i]);
    elsewhere[i] = length != lengths.end() && length->second == committing[i].length ? 1 : 0;
  }
  return elsewhere;
}

void SetPath::Run::commit() {
  parts.pool.abort(aborting);
  const std::vector<uint8_t> elsewhere = held_elsewhere();
  const UnderWay::Work work(parts.publisher.commits());
  rows.resize(committing.size());
  parts.pool.commit(committing, rows, {}, elsewhere);
  parts.publisher.tell(rows);
  std::vector<RecordRow> fresh;
  if (parts.note_sets.load(std::memory_order_relaxed)) fresh = rows;
  drop_removed();
  pinned.insert(pinned.end(), committing.begin(), committing.end());
  rows.clear();
  parts.pool.withdrawals_of(pinned, rows);
  parts.cold.left_pool(rows);
  parts.cold.write_behind(context.ns->id(), ns.epoch, pinned);
  // Only now: a withdrawal must not overtake the record.
  parts.fresh.add(context.ns->id(), ns.epoch, fresh);
}

// Drops pages with a removal that began before the commit, and so has not seen them. They are
// withdrawn behind their records.
void SetPath::Run::drop_removed() {
  if (!parts.running.any()) return;
  std::vector<Digest> removed;
  for (size_t i : chosen) {
    if (pages[i].status != PageStatus::ok || !parts.running.has(digests[i])) continue;
    pages[i].status = PageStatus::removing;
    removed.push_back(digests[i]);
  }
  if (!removed.empty()) parts.cold.drop(removed);
}

void SetPath::set(const RequestContext& context, std::span<PageRef> pages) {
  const Timed timed(parts_.latencies.set);
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, pages);
  mark_duplicates(digests, pages);
  Run run{parts_, context, ns, pages, digests};
  run.refuse();
  const Digest parent =
      context.parent_key.empty() ? Digest{} : digest_of(ns.key, context.parent_key);
  run.store_in_pieces(context.parent_key.empty() ? nullptr : &parent);
  run.store_busy();
  run.wait_told();
  for (const PageRef& page : pages) {
    parts_.counters.set[status_index(page.status)].fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace peercached
