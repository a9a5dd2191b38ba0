#include "engine/locator.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/payload.h"
#include "transfer/tcp/frames.h"

namespace peercached {

static_assert(tcp::kRowsPerDigestMax == kHoldersPerDigestMax);

namespace {

// Long enough for an `exists` that is repeated while its request waits. Short beside the life of a
// page, even in a pool that turns over in a second.
constexpr auto kRecent = std::chrono::milliseconds(200);
constexpr auto kEachDigest = std::chrono::microseconds(2);

// How many pages of this search each holder shall give.
using Shares = std::unordered_map<HolderIndex, double>;

// Chooses one of a digest's records, at a usable node. Prefers another holder than `failed`, then a
// resident page, then a holder that is quick and gives few pages so far.
const RecordRow* choose(std::span<const RecordRow> records, const NodeTable& nodes,
                        const HolderSpeeds& speeds, Shares& shares, TimePoint now,
                        HolderIndex failed, PageStatus& why) {
  const RecordRow* best = nullptr;
  int best_rank = -1;
  double best_cost = 0;
  for (const RecordRow& record : records) {
    const bool resident = record.flags & kRecordResident;
    if (record.holder == kSelfHolder) {
      // It was not in our pool when we looked: it has just come, or is just being withdrawn.
      if (resident) why = PageStatus::stale;
      continue;
    }
    if (!nodes.usable(record.holder)) {
      if (nodes.suspect(record.holder)) why = PageStatus::suspect;
      continue;
    }
    const int rank = 2 * (record.holder != failed) + resident;
    if (rank < best_rank) continue;
    const double cost = records.size() == 1
                            ? 0
                            : speeds.cost(record.digest, record.holder, now, shares[record.holder]);
    if (rank == best_rank && cost >= best_cost) continue;
    best = &record;
    best_rank = rank;
    best_cost = cost;
  }
  if (best != nullptr) ++shares[best->holder];
  return best;
}

// The digests that one owner is asked for, by place, ascending.
struct Part {
  HolderIndex owner;
  std::vector<size_t> places;
  bool reluctant = false;  // ask others first: it failed us with a page, or many read from it
};

// All places that each owner could be asked for.
std::vector<Part> candidates(const Ring& ring, std::span<const Digest> digests,
                             std::span<const size_t> places,
                             const std::function<bool(HolderIndex)>& may_be_asked) {
  std::vector<Part> parts;
  for (size_t place : places) {
    HolderIndex owners[kOwnersMax];
    const unsigned count = ring.owners(digests[place], owners);
    for (unsigned o = 0; o < count; ++o) {
      auto part = std::find_if(parts.begin(), parts.end(),
                               [&](const Part& one) { return one.owner == owners[o]; });
      if (part == parts.end()) part = parts.insert(part, {owners[o], {}});
      part->places.push_back(place);
    }
  }
  std::erase_if(parts, [&](const Part& part) { return !may_be_asked(part.owner); });
  return parts;
}

bool is_worse(const Part& a, const Part& b) {
  return std::pair(!a.reluctant, a.places.size()) < std::pair(!b.reluctant, b.places.size());
}

// Prefers few owners that know much to many that know little. A digest is in no part if none of its
// owners may be asked.
std::vector<Part> cover(std::vector<Part> parts, size_t digests) {
  std::vector<uint8_t> taken(digests, 0);
  std::vector<Part> chosen;
  while (!parts.empty()) {
    auto largest = std::max_element(parts.begin(), parts.end(), is_worse);
    for (size_t place : largest->places) taken[place] = 1;
    chosen.push_back(std::move(*largest));
    parts.erase(largest);
    for (Part& part : parts) {
      std::erase_if(part.places, [&](size_t place) { return taken[place] != 0; });
    }
    std::erase_if(parts, [](const Part& part) { return part.places.empty(); });
  }
  return chosen;
}

}  // namespace

struct Locator::Search {
  const Parts& sources;
  std::span<const Digest> digests;
  std::span<const HolderIndex> failed;  // may be empty
  Trust trust;
  Deadline deadline;
  std::span<RecordRow> rows;  // holder == kNoHolder: none yet
  std::span<PageStatus> why;  // pending: no answer yet
  Trace* trace;
  bool of_prefix;  // digests behind the first one that is nowhere need no lookup

  const TimePoint now = Clock::now();
  const uint64_t removals = sources.running.changes();
  const std::shared_ptr<const Ring> ring = sources.directory.ring();
  const bool alone = sources.directory.alone();
  size_t open = digests.size();
  Shares shares{};
  std::vector<uint8_t> settled = std::vector<uint8_t>(digests.size(), 0);  // 1: nowhere, and final

  void run();

  // The steps.
  void in_copies();
  void in_cache();
  void in_own_shard();
  void at_owners();
  void ask(const std::vector<Part>& parts);
  void by_control_plane();

  void take(size_t i, const RecordRow& record);
  void merge(std::vector<RecordRow>& found);
  // Marks the digests in `some` that are not found by now as nowhere.
  void settle(std::span<const size_t> some);
  std::vector<size_t> open_places() const;
  size_t first_hole() const;
  bool is_decided() const;  // it is known where the prefix ends
  // Ends a step. Its status is that of the first digest.
  void found_so_far(TraceStep& step);
  size_t told = 0;  // digests that earlier steps have found
};

void Locator::locate(std::span<const Digest> digests, std::span<const HolderIndex> failed,
                     Trust trust, Deadline deadline, std::span<RecordRow> rows,
                     std::span<PageStatus> why, Trace* trace, bool of_prefix) const {
  std::fill(why.begin(), why.end(), PageStatus::pending);
  for (RecordRow& row : rows) row.holder = kNoHolder;
  Search search{parts_, digests, failed, trust, deadline, rows, why, trace, of_prefix};
  search.run();
  for (PageStatus& status : why) {
    if (status == PageStatus::pending) status = PageStatus::absent;
  }
}

void Locator::Search::run() {
  if (trust != Trust::nothing && sources.copies != nullptr) in_copies();
  if (trust != Trust::nothing && open > 0) in_cache();
  if (open > 0 && ring) in_own_shard();
  if (open > 0 && ring && !alone && !is_decided()) at_owners();
  if (open > 0 && !alone && !is_decided()) by_control_plane();
}

void Locator::Search::found_so_far(TraceStep& step) {
  if (trace == nullptr) return;
  const auto found = static_cast<size_t>(std::count(why.begin(), why.end(), PageStatus::ok));
  // Many pages may be at many nodes, and the READs name those.
  const HolderIndex holder = digests.size() == 1 ? rows[0].holder : kNoHolder;
  step.done(why[0], holder, digests.size() - told, found - std::min(found, told));
  told = found;
}

void Locator::Search::take(size_t i, const RecordRow& record) {
  rows[i] = record;
  why[i] = PageStatus::ok;
  --open;
}

void Locator::Search::in_copies() {
  TraceStep step(trace, "copies");
  std::vector<RecordRow> found;
  sources.copies->find(digests, found);
  if (sources.running.any()) {
    std::erase_if(found, [&](const RecordRow& row) { return sources.running.has(row.digest); });
  }
  const size_t before = open;
  merge(found);
  sources.counters.keys_in_copies.fetch_add(before - open, std::memory_order_relaxed);
  found_so_far(step);
}

void Locator::Search::in_cache() {
  TraceStep step(trace, "location cache");
  const TimePoint since = trust == Trust::recent ? now - kRecent : TimePoint::min();
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] == PageStatus::ok) continue;
    RecordRow cached;
    if (sources.locations.find(digests[i], since, cached) && sources.nodes.usable(cached.holder)) {
      take(i, cached);
    }
  }
  found_so_far(step);
}

void Locator::Search::merge(std::vector<RecordRow>& found) {
  std::stable_sort(found.begin(), found.end(),
                   [](const RecordRow& a, const RecordRow& b) { return a.digest < b.digest; });
  auto below = [](const RecordRow& row, const Digest& digest) { return row.digest < digest; };
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] == PageStatus::ok) continue;
    auto first = std::lower_bound(found.begin(), found.end(), digests[i], below);
    auto last = first;
    while (last != found.end() && last->digest == digests[i]) ++last;
    const HolderIndex failed_at = failed.empty() ? kNoHolder : failed[i];
    if (const RecordRow* record =
            choose({first, last}, sources.nodes, sources.speeds, shares, now, failed_at, why[i])) {
      take(i, *record);
      sources.locations.put(*record, now, removals);
    }
  }
}

void Locator::Search::settle(std::span<const size_t> some) {
  for (size_t i : some) {
    if (settled[i] != 0 || why[i] == PageStatus::ok) continue;
    settled[i] = 1;
    --open;
  }
}

void Locator::Search::in_own_shard() {
  std::vector<Digest> own;
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] != PageStatus::ok && ring->owned_by(digests[i], kSelfHolder)) {
      own.push_back(digests[i]);
      places.push_back(i);
    }
  }
  if (own.empty()) return;
  TraceStep step(trace, "own shard");
  // The search after a failed READ asks the other owners too: our own shard may have misled us.
  const bool ask_others = !alone && trust == Trust::nothing;
  const uint64_t term = ask_others ? 0 : sources.directory.finality().term(ring->view_number());
  std::vector<RecordRow> found;
  sources.directory.shard().lookup(own, found);
  const bool final = alone || sources.directory.finality().lasts(term);
  merge(found);
  found_so_far(step);
  // Other owners may know another holder of a suspect's page.
  std::erase_if(places, [&](size_t i) { return why[i] == PageStatus::suspect; });
  if (final) settle(places);
}

void Locator::Search::at_owners() {
  TraceStep step(trace, "owners");
  const auto may_be_asked = [&](HolderIndex owner) {
    return owner != kSelfHolder && sources.nodes.readable(owner) && !sources.nodes.slow(owner, now);
  };
  const auto of_open = [&] {
    std::vector<Part> parts = candidates(*ring, digests, open_places(), may_be_asked);
    for (Part& part : parts) part.reluctant = std::ranges::find(failed, part.owner) != failed.end();
    return parts;
  };
  std::vector<Part> parts = of_open();
  if (of_prefix && sources.copies != nullptr) {
    // A page that no copy names is most likely nowhere. One owner of the first such digest can say
    // so.
    std::vector<Part> of_first = parts;
    std::erase_if(of_first, [&](const Part& part) { return part.places[0] != first_hole(); });
    if (!of_first.empty()) {
      ask({*std::max_element(of_first.begin(), of_first.end(), is_worse)});
      if (is_decided()) return found_so_far(step);
      parts = of_open();
    }
  }
  ask(cover(std::move(parts), digests.size()));
  found_so_far(step);
}

void Locator::Search::ask(const std::vector<Part>& parts) {
  if (parts.empty()) return;
  std::vector<std::vector<Digest>> asked(parts.size());
  std::vector<LookupBatch> batches;
  size_t count = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (size_t place : parts[p].places) asked[p].push_back(digests[place]);
    batches.push_back({parts[p].owner, sources.nodes.incarnation(parts[p].owner), asked[p]});
    count += asked[p].size();
  }
  sources.counters.lookups_asked.fetch_add(1, std::memory_order_relaxed);
  sources.counters.lookup_keys_asked.fetch_add(count, std::memory_order_relaxed);
  sources.counters.lookup_frames.fetch_add(batches.size(), std::memory_order_relaxed);
  const TimePoint began = Clock::now();
  const TimePoint late = began + kFramePatience + static_cast<int64_t>(count) * kEachDigest;
  sources.transfer.lookup(batches, ring->view_number(), Deadline{std::min(deadline.at, late)});
  std::vector<RecordRow> found;
  for (LookupBatch& batch : batches) {
    if (!batch.answered && Clock::now() >= late) {
      sources.nodes.set_slow(batch.peer, Clock::now() + kSlowFor);
    }
    const auto holders = sources.nodes.find(batch.located.holders);
    for (RecordRow& row : batch.located.rows) {
      row.holder = holders[row.holder];
      if (row.holder != kNoHolder) found.push_back(row);
    }
  }
  merge(found);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (batches[p].answered && batches[p].located.final) settle(parts[p].places);
  }
  if (trace == nullptr) return;
  for (const LookupBatch& batch : batches) {
    const PageStatus status = !batch.answered              ? PageStatus::deadline
                              : batch.located.rows.empty() ? PageStatus::absent
                                                           : PageStatus::ok;
    const TimePoint end = batch.answered ? batch.answered_at : Clock::now();
    // A digest may have several rows.
    const size_t known = std::min(batch.digests.size(), batch.located.rows.size());
    trace->add({"owner", began, end, batch.peer, status,
                static_cast<uint32_t>(batch.digests.size()), static_cast<uint32_t>(known)});
  }
}

void Locator::Search::by_control_plane() {
  std::vector<Digest> asked;
  for (const size_t i : open_places()) asked.push_back(digests[i]);
  if (asked.empty()) return;
  TraceStep step(trace, "control plane");
  sources.counters.lookups_passed_on.fetch_add(1, std::memory_order_relaxed);
  sources.counters.lookup_keys_passed_on.fetch_add(asked.size(), std::memory_order_relaxed);
  auto answer = sources.control.ask(EventKind::lookup,
                                    std::as_bytes(std::span<const Digest>(asked)), deadline);
  if (answer) {
    std::vector<RecordRow> found = items_of<RecordRow>(*answer);
    merge(found);
  } else {
    for (const size_t i : open_places()) {
      if (why[i] == PageStatus::pending) why[i] = PageStatus::deadline;
    }
  }
  found_so_far(step);
}

std::vector<size_t> Locator::Search::open_places() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] != PageStatus::ok && settled[i] == 0) places.push_back(i);
  }
  return places;
}

size_t Locator::Search::first_hole() const {
  return static_cast<size_t>(
      std::find_if(why.begin(), why.end(), [](PageStatus one) { return one != PageStatus::ok; }) -
      why.begin());
}

bool Locator::Search::is_decided() const {
  if (!of_prefix) return false;
  const size_t hole = first_hole();
  // A hole with a reason may be filled by our pool by now, or by another holder.
  return hole < why.size() && settled[hole] != 0 && why[hole] == PageStatus::pending;
}

}  // namespace peercached
