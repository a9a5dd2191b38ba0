#include "engine/records/locator.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/control/events.h"
#include "transfer/tcp/frames.h"

namespace peercached {

static_assert(tcp::kRowsPerDigestMax == kHoldersPerDigestMax + 1);

namespace {

// Long enough for an `exists` that is repeated while its request waits. Short beside the life of a
// page, even in a pool that turns over in a second.
constexpr auto kRecent = std::chrono::milliseconds(200);
constexpr auto kEachDigest = std::chrono::microseconds(2);
// For owners that are asked because others could not answer.
constexpr auto kOthersPatience = std::chrono::milliseconds(2000);

// The number of pages of this search that each holder is to give.
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
struct Question {
  HolderIndex owner;
  std::vector<size_t> places;
  bool reluctant = false;  // ask others first: it failed us with a page, or many read from it
};

// All places that each owner could be asked for.
std::vector<Question> candidates(const Ring& ring, std::span<const Digest> digests,
                                 std::span<const size_t> places,
                                 const std::function<bool(HolderIndex)>& may_be_asked) {
  std::vector<Question> questions;
  for (size_t place : places) {
    HolderIndex owners[kOwnersMax];
    const unsigned count = ring.owners(digests[place], owners);
    for (unsigned o = 0; o < count; ++o) {
      auto question = std::find_if(questions.begin(), questions.end(),
                                   [&](const Question& one) { return one.owner == owners[o]; });
      if (question == questions.end()) question = questions.insert(question, {owners[o], {}});
      question->places.push_back(place);
    }
  }
  std::erase_if(questions, [&](const Question& question) { return !may_be_asked(question.owner); });
  return questions;
}

bool is_worse(const Question& a, const Question& b) {
  return std::pair(!a.reluctant, a.places.size()) < std::pair(!b.reluctant, b.places.size());
}

// Prefers few owners that know much to many that know little. A digest is in no question if none of
// its owners may be asked.
std::vector<Question> cover(std::vector<Question> questions, size_t digests) {
  std::vector<uint8_t> taken(digests, 0);
  std::vector<Question> chosen;
  while (!questions.empty()) {
    auto largest = std::max_element(questions.begin(), questions.end(), is_worse);
    for (size_t place : largest->places) taken[place] = 1;
    chosen.push_back(std::move(*largest));
    questions.erase(largest);
    for (Question& question : questions) {
      std::erase_if(question.places, [&](size_t place) { return taken[place] != 0; });
    }
    std::erase_if(questions, [](const Question& question) { return question.places.empty(); });
  }
  return chosen;
}

// The rows of an answer, with our numbers of their holders.
std::vector<RecordRow> rows_of(const NodeTable& nodes, const Located& located) {
  const auto holders = nodes.find(located.holders);
  std::vector<RecordRow> rows;
  for (RecordRow row : located.rows) {
    row.holder = holders[row.holder];
    if (row.holder != kNoHolder) rows.push_back(row);
  }
  return rows;
}

}  // namespace

struct Locator::Search {
  const Locator& sources;
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
  size_t open = digests.size();
  // By place: owners that have answered. Empty before the first question.
  std::vector<std::vector<HolderIndex>> answered{};
  bool timed_out = false;                 // some owner gave no answer in time
  bool unreachable = false;               // some owner could not be asked
  std::vector<RecordRow>* all = nullptr;  // gets all records that owners name
  Shares shares{};
  std::vector<uint8_t> settled = std::vector<uint8_t>(digests.size(), 0);  // 1: nowhere, and final

  void run();

  // The steps.
  void in_table();
  void settle_unless_here(std::vector<size_t> places);
  void in_cache();
  void at_owners();
  void at_others();
  void ask(const std::vector<Question>& questions, std::chrono::milliseconds patience);

  void take(size_t i, const RecordRow& record);
  // Takes the best usable record of each digest. Returns the places found.
  std::vector<size_t> merge(std::vector<RecordRow>& found);
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
  Search search{*this, digests, failed, trust, deadline, rows, why, trace, of_prefix};
  search.run();
  for (size_t i = 0; i < why.size(); ++i) {
    if (why[i] != PageStatus::pending) continue;
    // Nobody could say that it is nowhere. A suspect may have it.
    const bool unsure = search.settled[i] == 0 && !directory.alone();
    why[i] = unsure && search.timed_out                              ? PageStatus::deadline
             : unsure && (search.unreachable || nodes.any_suspect()) ? PageStatus::suspect
                                                                     : PageStatus::absent;
  }
}

std::vector<RecordRow> Locator::find_all(std::span<const Digest> digests, Deadline deadline) const {
  std::vector<RecordRow> rows;
  directory.records().find_all(digests, rows);
  std::vector<Digest> missing;
  for (const Digest& digest : digests) {
    const bool known =
        std::ranges::any_of(rows, [&](const RecordRow& row) { return row.digest == digest; });
    if (!known) missing.push_back(digest);
  }
  std::vector<RecordRow> chosen(missing.size());
  std::vector<PageStatus> why(missing.size(), PageStatus::pending);
  for (RecordRow& row : chosen) row.holder = kNoHolder;
  Search search{*this, missing, {}, Trust::nothing, deadline, chosen, why, nullptr, false};
  search.all = &rows;
  search.run();
  return rows;
}

std::optional<std::pair<std::vector<RecordRow>, bool>> Locator::ask_owner(
    HolderIndex owner, std::span<const Digest> digests, Deadline deadline) const {
  const auto ring = directory.ring();
  const uint64_t view_number = ring ? ring->view_number() : 0;
  if (owner == kSelfHolder) {
    Located located;
    directory.lookup(digests, view_number, located);
    return std::pair(rows_of(nodes, located), located.final);
  }
  LookupBatch batch{owner, nodes.incarnation(owner), digests};
  transfer.lookup({&batch, 1}, view_number, deadline);
  if (!batch.answered) return std::nullopt;
  return std::pair(rows_of(nodes, batch.located), batch.located.final);
}

void Locator::Search::run() {
  in_table();
  if (trust != Trust::nothing && open > 0) in_cache();
  if (open > 0 && ring && !sources.directory.alone() && !is_decided()) at_owners();
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

void Locator::Search::in_table() {
  TraceStep step(trace, "copies");
  std::vector<RecordRow> found;
  const uint64_t final_view = sources.directory.records().find(digests, found);
  // A record that has just misled us may do so again.
  const bool misled = trust == Trust::nothing && !failed.empty();
  if (misled) {
    std::erase_if(found, [&](const RecordRow& row) {
      return std::ranges::find(failed, row.holder) != failed.end();
    });
  }
  const size_t before = open;
  (void)merge(found);
  sources.counters.keys_in_copies.add(before - open);
  found_so_far(step);
  if (misled || !ring || final_view != ring->view_number()) return;
  std::vector<size_t> places;
  for (const size_t i : open_places()) {
    if (why[i] != PageStatus::suspect && ring->owned_by(digests[i], kSelfHolder))
      places.push_back(i);
  }
  settle_unless_here(places);
}

// These pages have no record. One may have moved into our pool since the caller looked there.
void Locator::Search::settle_unless_here(std::vector<size_t> places) {
  std::vector<Digest> some;
  for (const size_t i : places) some.push_back(digests[i]);
  const std::vector<RecordRow> here = sources.directory.own_records(some);
  std::erase_if(places, [&](size_t i) {
    const bool is_here = std::ranges::find(here, digests[i], &RecordRow::digest) != here.end();
    if (is_here) why[i] = PageStatus::stale;
    return is_here;
  });
  settle(places);
}

void Locator::Search::in_cache() {
  TraceStep step(trace, "location cache");
  const TimePoint since = trust == Trust::recent ? now - kRecent : TimePoint::min();
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] == PageStatus::ok || settled[i] != 0) continue;
    RecordRow cached;
    if (sources.locations.find(digests[i], since, cached) && sources.nodes.usable(cached.holder)) {
      take(i, cached);
    }
  }
  found_so_far(step);
}

std::vector<size_t> Locator::Search::merge(std::vector<RecordRow>& found) {
  if (sources.running.any()) {
    std::erase_if(found, [&](const RecordRow& row) { return sources.running.has(row.digest); });
  }
  // Not in the order of `digests`: owners answer one by one, and a digest may be there twice.
  std::ranges::stable_sort(found, {}, &RecordRow::digest);
  std::vector<size_t> taken;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (why[i] == PageStatus::ok) continue;
    const auto records = std::ranges::equal_range(found, digests[i], {}, &RecordRow::digest);
    const HolderIndex failed_at = failed.empty() ? kNoHolder : failed[i];
    if (const RecordRow* record =
            choose(records, sources.nodes, sources.speeds, shares, now, failed_at, why[i])) {
      take(i, *record);
      taken.push_back(i);
    }
  }
  return taken;
}

void Locator::Search::settle(std::span<const size_t> some) {
  for (size_t i : some) {
    if (settled[i] != 0 || why[i] == PageStatus::ok) continue;
    settled[i] = 1;
    --open;
  }
}

void Locator::Search::at_owners() {
  TraceStep step(trace, "owners");
  const auto may_be_asked = [&](HolderIndex owner) {
    return owner != kSelfHolder && sources.nodes.readable(owner) && !sources.nodes.slow(owner, now);
  };
  const auto of_open = [&] {
    std::vector<Question> questions = candidates(*ring, digests, open_places(), may_be_asked);
    for (Question& question : questions)
      question.reluctant = std::ranges::find(failed, question.owner) != failed.end();
    return questions;
  };
  std::vector<Question> questions = of_open();
  if (of_prefix) {
    // A page that no record names is most likely nowhere. One owner of the first such digest can
    // say so.
    std::vector<Question> of_first = questions;
    std::erase_if(of_first,
                  [&](const Question& question) { return question.places[0] != first_hole(); });
    if (!of_first.empty()) {
      ask({*std::max_element(of_first.begin(), of_first.end(), is_worse)}, kFramePatience);
      if (is_decided()) return found_so_far(step);
      questions = of_open();
    }
  }
  ask(cover(std::move(questions), digests.size()), kFramePatience);
  if (open > 0 && !is_decided()) at_others();
  found_so_far(step);
}

// If owners were not final, slow or silent: asks all others at once, and the owners of the former
// ring.
void Locator::Search::at_others() {
  sources.counters.lookups_passed_on.add();
  const auto may_be_asked = [&](HolderIndex owner) {
    return owner != kSelfHolder && sources.nodes.readable(owner);
  };
  std::vector<Question> questions = candidates(*ring, digests, open_places(), may_be_asked);
  if (const auto former = sources.directory.former_ring()) {
    for (Question& question : candidates(*former, digests, open_places(), may_be_asked)) {
      const auto known = std::ranges::find(questions, question.owner, &Question::owner);
      if (known == questions.end()) {
        questions.push_back(std::move(question));
      } else {
        known->places.insert(known->places.end(), question.places.begin(), question.places.end());
      }
    }
  }
  for (Question& question : questions) {
    std::ranges::sort(question.places);
    question.places.erase(std::ranges::unique(question.places).begin(), question.places.end());
    std::erase_if(question.places, [&](size_t place) {
      return std::ranges::find(answered[place], question.owner) != answered[place].end();
    });
  }
  std::erase_if(questions, [](const Question& question) { return question.places.empty(); });
  ask(questions, kOthersPatience);
}

void Locator::Search::ask(const std::vector<Question>& questions,
                          std::chrono::milliseconds patience) {
  answered.resize(digests.size());
  if (questions.empty()) return;
  std::vector<std::vector<Digest>> asked(questions.size());
  std::vector<LookupBatch> batches;
  size_t count = 0;
  for (size_t p = 0; p < questions.size(); ++p) {
    for (size_t place : questions[p].places) asked[p].push_back(digests[place]);
    batches.push_back(
        {questions[p].owner, sources.nodes.incarnation(questions[p].owner), asked[p]});
    count += asked[p].size();
  }
  sources.counters.lookups_asked.add();
  sources.counters.lookup_keys_asked.add(count);
  sources.counters.lookup_frames.add(batches.size());
  const TimePoint began = Clock::now();
  const TimePoint late = began + patience + static_cast<int64_t>(count) * kEachDigest;
  sources.transfer.lookup(batches, ring->view_number(), Deadline{std::min(deadline.at, late)});
  std::vector<RecordRow> found;
  for (LookupBatch& batch : batches) {
    if (!batch.answered && Clock::now() >= late) {
      sources.nodes.set_slow(batch.peer, Clock::now() + kSlowFor);
      if (patience >= kOthersPatience)
        sources.watcher.peer_trouble(batch.peer, batch.incarnation,
                                     {"it did not say who has pages"});
    }
    std::ranges::copy(rows_of(sources.nodes, batch.located), std::back_inserter(found));
  }
  for (const size_t i : merge(found)) sources.locations.put(rows[i], now, removals);
  if (all != nullptr) all->insert(all->end(), found.begin(), found.end());
  for (size_t p = 0; p < questions.size(); ++p) {
    if (!batches[p].answered) (Clock::now() >= late ? timed_out : unreachable) = true;
    if (batches[p].answered) {
      for (size_t place : questions[p].places) answered[place].push_back(questions[p].owner);
    }
    if (batches[p].answered && batches[p].located.final) settle(questions[p].places);
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
