#include <algorithm>
#include <cstring>
#include <functional>

#include "engine/search.h"
#include "transfer/tcp/frames.h"

namespace peercached {

static_assert(tcp::kRowsPerDigestMax == kHoldersPerDigestMax);

namespace {

// Long enough for an `exists` that is repeated while its request waits. Short beside the life of a
// page, even in a pool that turns over in a second.
constexpr auto kRecent = std::chrono::milliseconds(200);
constexpr auto kEachDigest = std::chrono::microseconds(2);

// The whole records of an answer. An empty answer has no memory to copy from.
std::vector<RecordRow> rows_of(std::span<const std::byte> packed) {
  std::vector<RecordRow> rows(packed.size() / sizeof(RecordRow));
  if (!rows.empty()) std::memcpy(rows.data(), packed.data(), rows.size() * sizeof(RecordRow));
  return rows;
}

// Chooses one of a digest's records, at a usable node. Prefers another holder than `failed`, then a
// resident page. Among equal ones the digest decides, so that readers spread.
const RecordRow* choose(std::span<const RecordRow> records, const NodeTable& nodes,
                        HolderIndex failed, PageStatus& why) {
  const RecordRow* best = nullptr;
  int best_rank = -1;
  const size_t start = records.empty() ? 0 : records[0].digest.hi % records.size();
  for (size_t i = 0; i < records.size(); ++i) {
    const RecordRow& record = records[(start + i) % records.size()];
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
    if (rank <= best_rank) continue;
    best = &record;
    best_rank = rank;
  }
  return best;
}

using Part = OwnersPart;

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

bool is_smaller(const Part& a, const Part& b) { return a.places.size() < b.places.size(); }

// Prefers few owners that know much to many that know little. A digest is in no part if none of its
// owners may be asked.
std::vector<Part> cover(std::vector<Part> parts, size_t digests) {
  std::vector<uint8_t> taken(digests, 0);
  std::vector<Part> chosen;
  while (!parts.empty()) {
    auto largest = std::max_element(parts.begin(), parts.end(), is_smaller);
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

void Engine::locate(std::span<const Digest> digests, std::span<const HolderIndex> failed,
                    Trust trust, Deadline deadline, std::span<RecordRow> rows,
                    std::span<PageStatus> why, Trace* trace, bool of_prefix) {
  std::fill(why.begin(), why.end(), PageStatus::pending);
  for (RecordRow& row : rows) row.holder = kNoHolder;
  Search search{*this, digests, failed, trust, deadline, rows, why, trace, of_prefix};
  search.run();
  for (PageStatus& status : why) {
    if (status == PageStatus::pending) status = PageStatus::absent;
  }
}

void Engine::lookup_local(std::span<const Digest> digests, uint64_t view_number, Located& located) {
  const uint64_t term = finality_.term(view_number);
  std::vector<RecordRow> rows;
  shard_->lookup(digests, rows);
  std::vector<HolderIndex> named;  // by place in the answer's table of holders
  for (RecordRow& row : rows) {
    auto at = std::find(named.begin(), named.end(), row.holder);
    if (at == named.end()) {
      if (!nodes_.live(row.holder)) continue;
      at = named.insert(at, row.holder);
      located.holders.push_back(nodes_.incarnation(row.holder));
    }
    row.holder = static_cast<HolderIndex>(at - named.begin());
    located.rows.push_back(row);
  }
  located.final = finality_.lasts(term);
  counters_.lookups_answered.fetch_add(1, std::memory_order_relaxed);
}

void Engine::Search::run() {
  if (trust != Trust::nothing) in_cache();
  if (trust != Trust::nothing && open > 0 && engine.copies_) in_copies();
  if (open > 0 && ring) in_own_shard();
  if (open > 0 && ring && !alone && !is_decided()) at_owners();
  if (open > 0 && !alone && !is_decided()) by_control_plane();
}

void Engine::Search::found_so_far(TraceStep& step) const {
  if (trace != nullptr) step.done(why[0], rows[0].holder);
}

void Engine::Search::take(size_t i, const RecordRow& record) {
  rows[i] = record;
  why[i] = PageStatus::ok;
  --open;
}

void Engine::Search::in_cache() {
  TraceStep step(trace, "location cache");
  const TimePoint since = trust == Trust::recent ? now - kRecent : TimePoint::min();
  for (size_t i = 0; i < digests.size(); ++i) {
    RecordRow cached;
    if (engine.locations_.find(digests[i], since, cached) && engine.nodes_.usable(cached.holder)) {
      take(i, cached);
    }
  }
  found_so_far(step);
}

void Engine::Search::in_copies() {
  TraceStep step(trace, "copies");
  std::vector<RecordRow> found;
  engine.copies_->find(digests, found);
  if (engine.running_.any()) {
    std::erase_if(found, [&](const RecordRow& row) { return engine.running_.has(row.digest); });
  }
  const size_t before = open;
  merge(found);
  engine.counters_.keys_in_copies.fetch_add(before - open, std::memory_order_relaxed);
  found_so_far(step);
}

void Engine::Search::merge(std::vector<RecordRow>& found) {
  std::stable_sort(found.begin(), found.end(),
                   [](const RecordRow& a, const RecordRow& b) { return a.digest < b.digest; });
  auto below = [](const RecordRow& row, const Digest& digest) { return row.digest < digest; };
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] == PageStatus::ok) continue;
    auto first = std::lower_bound(found.begin(), found.end(), digests[i], below);
    auto last = first;
    while (last != found.end() && last->digest == digests[i]) ++last;
    const HolderIndex failed_at = failed.empty() ? kNoHolder : failed[i];
    if (const RecordRow* record = choose({first, last}, engine.nodes_, failed_at, why[i])) {
      take(i, *record);
      engine.locations_.put(*record, now, removals);
    }
  }
}

void Engine::Search::settle(std::span<const size_t> some) {
  for (size_t i : some) {
    if (settled[i] != 0 || why[i] == PageStatus::ok) continue;
    settled[i] = 1;
    --open;
  }
}

void Engine::Search::in_own_shard() {
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
  const uint64_t term = ask_others ? 0 : engine.finality_.term(ring->view_number());
  std::vector<RecordRow> found;
  engine.shard_->lookup(own, found);
  const bool final = alone || engine.finality_.lasts(term);
  merge(found);
  found_so_far(step);
  // Other owners may know another holder of a suspect's page.
  std::erase_if(places, [&](size_t i) { return why[i] == PageStatus::suspect; });
  if (final) settle(places);
}

void Engine::Search::at_owners() {
  TraceStep step(trace, "owners");
  const auto may_be_asked = [&](HolderIndex owner) {
    return owner != kSelfHolder && engine.nodes_.readable(owner) && !engine.nodes_.slow(owner, now);
  };
  const auto of_open = [&] { return candidates(*ring, digests, open_places(), may_be_asked); };
  std::vector<Part> parts = of_open();
  if (of_prefix && engine.copies_) {
    // A page that no copy names is most likely nowhere. One owner of the first such digest can say
    // so.
    std::vector<Part> of_first = parts;
    std::erase_if(of_first, [&](const Part& part) { return part.places[0] != first_hole(); });
    if (!of_first.empty()) {
      ask({*std::max_element(of_first.begin(), of_first.end(), is_smaller)});
      if (is_decided()) return found_so_far(step);
      parts = of_open();
    }
  }
  ask(cover(std::move(parts), digests.size()));
  found_so_far(step);
}

void Engine::Search::ask(const std::vector<Part>& parts) {
  if (parts.empty()) return;
  std::vector<std::vector<Digest>> asked(parts.size());
  std::vector<LookupBatch> batches;
  size_t count = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    for (size_t place : parts[p].places) asked[p].push_back(digests[place]);
    batches.push_back({parts[p].owner, engine.nodes_.incarnation(parts[p].owner), asked[p]});
    count += asked[p].size();
  }
  engine.counters_.lookups_asked.fetch_add(1, std::memory_order_relaxed);
  engine.counters_.lookup_keys_asked.fetch_add(count, std::memory_order_relaxed);
  engine.counters_.lookup_frames.fetch_add(batches.size(), std::memory_order_relaxed);
  const TimePoint began = Clock::now();
  const TimePoint late = began + kFramePatience + static_cast<int64_t>(count) * kEachDigest;
  engine.transfer_->lookup(batches, ring->view_number(), Deadline{std::min(deadline.at, late)});
  std::vector<RecordRow> found;
  for (LookupBatch& batch : batches) {
    if (!batch.answered && Clock::now() >= late) {
      engine.nodes_.set_slow(batch.peer, Clock::now() + kSlowFor);
    }
    const auto holders = engine.nodes_.find(batch.located.holders);
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
    trace->steps.push_back({"owner", began, end, batch.peer, status});
  }
}

void Engine::Search::by_control_plane() {
  std::vector<Digest> asked;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (is_open(i)) asked.push_back(digests[i]);
  }
  if (asked.empty()) return;
  TraceStep step(trace, "control plane");
  engine.counters_.lookups_passed_on.fetch_add(1, std::memory_order_relaxed);
  engine.counters_.lookup_keys_passed_on.fetch_add(asked.size(), std::memory_order_relaxed);
  auto answer = engine.control_.ask(EventKind::lookup,
                                    std::as_bytes(std::span<const Digest>(asked)), deadline);
  if (answer) {
    std::vector<RecordRow> found = rows_of(*answer);
    merge(found);
  } else {
    for (size_t i = 0; i < why.size(); ++i) {
      if (is_open(i) && why[i] == PageStatus::pending) why[i] = PageStatus::deadline;
    }
  }
  found_so_far(step);
}

bool Engine::Search::is_open(size_t i) const { return why[i] != PageStatus::ok && settled[i] == 0; }

std::vector<size_t> Engine::Search::open_places() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (is_open(i)) places.push_back(i);
  }
  return places;
}

size_t Engine::Search::first_hole() const {
  return static_cast<size_t>(
      std::find_if(why.begin(), why.end(), [](PageStatus one) { return one != PageStatus::ok; }) -
      why.begin());
}

bool Engine::Search::is_decided() const {
  if (!of_prefix) return false;
  const size_t hole = first_hole();
  // A hole with a reason may be filled by our pool by now, or by another holder.
  return hole < why.size() && settled[hole] != 0 && why[hole] == PageStatus::pending;
}

}  // namespace peercached
