#include "engine/paths/exists_path.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>

#include "engine/control/events.h"
#include "engine/paths/request_pages.h"
#include "engine/storage/namespaces.h"

namespace peercached {
namespace {

// A wait looks again after so long: pages may also be found without a new record, for example when
// a node is no longer suspect.
constexpr auto kPauseMin = std::chrono::milliseconds(20);
constexpr auto kPauseMax = std::chrono::milliseconds(500);
// A wait ends so long before the deadline, or the client would take us for silent.
constexpr auto kAnswerTime = std::chrono::milliseconds(50);

// Time for the control plane to look for removals in the object store. Else its pages are misses.
constexpr auto kVouchTime = std::chrono::milliseconds(200);

// Somebody waits for the answer, and the namespace has not been cleared.
bool still_asked(const RequestContext& context, uint64_t epoch) {
  return !context.gate->fenced() && (context.gone == nullptr || !(*context.gone)()) &&
         context.ns->current().epoch == epoch;
}

}  // namespace

void ExistsKeys::count_prefix() {
  prefix = static_cast<uint32_t>(std::ranges::find(present, 0) - present.begin());
}

std::vector<uint8_t> ExistsKeys::in_pools() const {
  std::vector<uint8_t> there = present;
  for (size_t i = 0; i < keys.size(); ++i) there[i] &= on_disk[i] == 0;
  for (size_t k = 0; k < rows.size(); ++k) {
    if ((rows[k].flags & kRecordResident) == 0) there[index[k]] = 0;
  }
  return there;
}

size_t ExistsKeys::lacking() const {
  if (context.hold_ms == 0) return prefix;
  const std::vector<uint8_t> there = in_pools();
  return static_cast<size_t>(std::ranges::find(there, 0) - there.begin());
}

void ExistsKeys::drop_untold() {
  std::fill(present.begin() + static_cast<ptrdiff_t>(told()), present.end(), 0);
}

std::vector<LoadPlace> ExistsKeys::places() const {
  std::vector<LoadPlace> places(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (on_disk[i] != 0) places[i].source = Source::disk;
    if (in_store[i] != 0) places[i].source = Source::store;
  }
  for (size_t k = 0; k < index.size(); ++k) {
    const bool resident = (rows[k].flags & kRecordResident) != 0;
    places[index[k]] = {resident ? Source::peer : Source::peer_disk, rows[k].holder};
  }
  return places;
}

void ExistsLook::look(ExistsKeys& asked) const {
  asked.index.clear();
  asked.rows.clear();
  asked.stored.clear();
  asked.in_store.assign(asked.keys.size(), 0);
  in_our_pool_and_disk(asked);
  elsewhere(asked);
  asked.count_prefix();
}

bool ExistsLook::wait(ExistsKeys& asked, const Serving& serving, uint64_t epoch,
                      const std::function<void()>& looked) const {
  const RequestContext& context = asked.context;
  const TimePoint until = std::min(context.deadline.at - kAnswerTime,
                                   Clock::now() + std::chrono::milliseconds(context.wait.ms));
  Arrivals& arrivals = locator.directory.arrivals();
  // Without all records, most pages come without one.
  const bool has_all = !locator.directory.records().stores_owned();
  auto pause = has_all ? kPauseMax : kPauseMin;
  while (true) {
    const size_t missing = asked.lacking();
    if (missing >= asked.wanted()) return true;
    if (asked.keys[missing].status != PageStatus::pending) return false;
    Arrivals::Wait arrival(arrivals, asked.digests[missing]);
    look(asked);
    looked();
    const TimePoint now = Clock::now();
    if (now >= until || arrivals.closed() || !still_asked(context, epoch) || !serving.on())
      return false;
    if (asked.lacking() != missing) continue;
    arrival.until(std::min(until, now + pause));
    pause = std::min(2 * pause, kPauseMax);
  }
}

void ExistsLook::pause(const ExistsKeys& asked) const {
  Arrivals::Wait arrival(locator.directory.arrivals(), asked.digests[asked.prefix]);
  arrival.until(Clock::now() + kPauseMin);
}

void ExistsLook::in_our_pool_and_disk(ExistsKeys& asked) const {
  asked.present.assign(asked.keys.size(), 0);
  pool.contains(asked.digests, true, asked.present);
  // Pages on our disk only are hits, but slow ones. Those reported to the caller are promoted now.
  asked.on_disk.assign(asked.keys.size(), 0);
  const bool all_here = std::ranges::find(asked.present, 0) == asked.present.end();
  if (all_here || !disk.readable()) return;
  std::vector<uint8_t> here = asked.present;
  disk.find_all(asked.digests, here);
  for (size_t i = 0; i < asked.keys.size(); ++i) asked.on_disk[i] = here[i] != asked.present[i];
  asked.present = std::move(here);
}

void ExistsLook::list_missing(ExistsKeys& asked) {
  for (size_t i = 0; i < asked.keys.size(); ++i) {
    if (asked.keys[i].status != PageStatus::pending) {  // a bad key is nowhere, and ends the prefix
      asked.present[i] = 0;
      if (!asked.all) break;
    } else if (asked.present[i] == 0) {
      asked.index.push_back(i);
    }
  }
}

bool ExistsLook::in_store(ExistsKeys& asked) const {
  // A hold promises only pages in pools.
  if (objects.empty() || asked.context.hold_ms != 0) return false;
  std::vector<uint32_t> stored(asked.keys.size());
  objects.lengths(asked.digests, stored);
  if (std::ranges::none_of(asked.index, [&](size_t i) { return stored[i] != 0; })) return false;
  if (!objects.vouched()) {
    const Deadline soon{std::min(asked.context.deadline.at, Clock::now() + kVouchTime)};
    (void)control.ask(EventKind::fetch, {}, soon);
    if (!objects.vouched()) return false;
  }
  // Only now: what has been removed left the index before it was vouched for.
  stored.assign(stored.size(), 0);
  objects.lengths(asked.digests, stored);
  asked.stored = std::move(stored);
  return true;
}

void ExistsLook::elsewhere(ExistsKeys& asked) const {
  list_missing(asked);
  if (asked.index.empty()) return;
  const bool stored = in_store(asked);
  std::vector<Digest> missing;
  for (size_t i : asked.index) missing.push_back(asked.digests[i]);
  asked.rows.resize(missing.size());
  std::vector<PageStatus> why(missing.size());
  locator.locate(missing, {}, Trust::recent, asked.context.deadline, asked.rows, why, nullptr,
                 !asked.all && !stored);
  size_t found = 0;
  for (size_t k = 0; k < missing.size(); ++k) {
    uint8_t& present = asked.present[asked.index[k]];
    // The holder must be readable, not merely known: a hit is a promise.
    present = asked.rows[k].holder != kNoHolder && nodes.readable(asked.rows[k].holder);
    // Stale: our own record of a page that was not here. It may have come since we looked.
    if (why[k] == PageStatus::stale) {
      pool.contains({&missing[k], 1}, true, {&present, 1});
      if (present != 0) continue;
    }
    if (present == 0 && stored && asked.stored[asked.index[k]] != 0) {
      asked.in_store[asked.index[k]] = present = 1;
      continue;
    }
    asked.index[found] = asked.index[k];
    asked.rows[found++] = asked.rows[k];
  }
  asked.index.resize(found);
  asked.rows.resize(found);
}

void ExistsLook::add_lengths(ExistsKeys& asked) const {
  asked.lengths.assign(asked.keys.size(), 0);
  pool.lengths(asked.digests, asked.lengths);
  for (size_t i = 0; i < asked.keys.size(); ++i) {
    if (asked.in_store[i] != 0) asked.lengths[i] = asked.stored[i];
    if (asked.on_disk[i] == 0 || asked.lengths[i] != 0) continue;
    if (const auto page = disk.find(asked.digests[i])) asked.lengths[i] = page->length;
  }
  for (size_t k = 0; k < asked.index.size(); ++k) {
    if (asked.lengths[asked.index[k]] == 0) asked.lengths[asked.index[k]] = asked.rows[k].length;
  }
  for (size_t i = 0; i < asked.keys.size(); ++i) {
    if (asked.present[i] == 0) asked.lengths[i] = 0;
  }
}

void ExistsWarm::warm(const ExistsKeys& asked) const {
  std::vector<Digest> here;
  for (size_t i = 0; i < asked.told(); ++i) {
    if (asked.on_disk[i] != 0) here.push_back(asked.digests[i]);
  }
  promoter.warm(here);
  const TimePoint now = Clock::now();
  std::vector<Digest> stored;
  for (size_t i = 0; i < asked.told(); ++i) {
    if (asked.in_store[i] != 0 && wishes.is_new(asked.digests[i], now))
      stored.push_back(asked.digests[i]);
  }
  if (!stored.empty()) control.post(EventKind::fetch, payload_of(stored));
  std::map<HolderIndex, std::vector<Digest>> elsewhere;
  for (size_t k = 0; k < asked.index.size() && asked.index[k] < asked.told(); ++k) {
    if (asked.present[asked.index[k]] == 0 || asked.rows[k].flags & kRecordResident) continue;
    const Digest& digest = asked.digests[asked.index[k]];
    if (wishes.is_new(digest, now)) elsewhere[asked.rows[k].holder].push_back(digest);
  }
  for (const auto& [holder, wanted] : elsewhere) {
    control.post(EventKind::promote, payload_of(PromoteQuestion{holder}, wanted));
  }
}

void ExistsHold::hold_present(ExistsKeys& asked) const {
  asked.drop_untold();
  asked.present = asked.in_pools();
  asked.count_prefix();
  asked.drop_untold();
  hold(asked);
  asked.count_prefix();
}

void ExistsHold::hold(ExistsKeys& asked) const {
  // The keys that each holder is asked to hold. kSelfHolder is this node.
  std::map<HolderIndex, std::vector<size_t>> by_holder;
  std::vector<HolderIndex> holder_of(asked.keys.size(), kSelfHolder);
  for (size_t k = 0; k < asked.index.size(); ++k) holder_of[asked.index[k]] = asked.rows[k].holder;
  for (size_t i = 0; i < asked.keys.size(); ++i) {
    if (asked.present[i] != 0) by_holder[holder_of[i]].push_back(i);
  }
  struct Wish {
    std::vector<Digest> digests;
    std::vector<uint8_t> held;
  };
  std::map<HolderIndex, Wish> wishes;
  std::vector<HoldBatch> batches;
  for (const auto& [holder, wanted] : by_holder) {
    Wish& one = wishes[holder];
    for (size_t i : wanted) one.digests.push_back(asked.digests[i]);
    one.held.assign(wanted.size(), 0);
    if (holder == kSelfHolder) {
      local.hold(one.digests, asked.context.hold_ms, one.held);
    } else {
      batches.push_back({holder, nodes.incarnation(holder), one.digests, one.held});
    }
  }
  if (!batches.empty()) transfer.hold(batches, asked.context.hold_ms, asked.context.deadline);
  for (const auto& [holder, wanted] : by_holder) {
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (wishes[holder].held[k] != 0) continue;
      asked.present[wanted[k]] = 0;
      if (holder != kSelfHolder) locations.forget(asked.digests[wanted[k]]);
    }
  }
}

ExistsAnswer ExistsPath::exists(const RequestContext& context, std::span<PageRef> keys,
                                bool all) const {
  counters.loads_judged.add(context.news);
  std::optional<Timed> timed;
  if (context.wait.ms == 0) timed.emplace(latencies.exists);
  if (!serving.on()) {
    return {0, std::vector<uint8_t>(keys.size(), 0)};
  }
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  ExistsKeys asked{context, keys, digests, all};
  if (context.here) {  // no question of a user, so it counts in no hit rate
    asked.present.assign(keys.size(), 0);
    look.pool.contains(digests, true, asked.present);
    asked.count_prefix();
    return {asked.prefix, std::move(asked.present)};
  }
  look.look(asked);
  if (context.wait.again) asked.before = asked.prefix;
  std::optional<std::vector<uint8_t>> held;
  if (context.wait.ms != 0) {
    held = wait(asked, ns.epoch);
    // Removals that nobody told us, or a clear.
    if (!serving.on() || context.ns->current().epoch != ns.epoch)
      return {0, std::vector<uint8_t>(keys.size(), 0), std::vector<uint32_t>(keys.size(), 0)};
  }
  warm.warm(asked);
  const std::vector<uint8_t> there = held ? *held : asked.present;
  if (context.hold_ms != 0 && !held) hold.hold_present(asked);
  if (context.lengths || context.forecast) look.add_lengths(asked);
  const Looked demand = looked(asked, there);
  counters.demand.add(demand, context.page);
  context.ns->demand().add(demand, context.page);
  ExistsAnswer answer{asked.prefix, {}, {}};
  if (context.forecast) add_forecast(asked, answer);
  answer.present = std::move(asked.present);
  answer.lengths = std::move(asked.lengths);
  return answer;
}

void ExistsPath::add_forecast(const ExistsKeys& asked, ExistsAnswer& answer) const {
  const std::vector<LoadPlace> places = asked.places();
  LoadForecast forecast(times, Clock::now());
  answer.cold = asked.in_store;
  answer.cold.resize(asked.keys.size());
  for (size_t i = 0; i < asked.keys.size(); ++i) {
    if (i < asked.told() && asked.present[i] != 0) forecast.add(places[i], asked.lengths[i]);
    answer.p50_us.push_back(forecast.p50_us());
    answer.p90_us.push_back(forecast.p90_us());
  }
}

std::optional<std::vector<uint8_t>> ExistsPath::wait(ExistsKeys& asked, uint64_t epoch) const {
  // Pages on a disk come into a pool before they are held.
  const auto warm_all = [&] { warm.warm(asked); };
  warm_all();
  while (look.wait(asked, serving, epoch, warm_all) && asked.context.hold_ms != 0) {
    std::vector<uint8_t> there = asked.present;
    hold.hold_present(asked);
    if (asked.prefix >= asked.wanted()) return there;
    // A record still names a pool that the page has just left.
    look.pause(asked);
  }
  return std::nullopt;
}

Looked ExistsPath::looked(const ExistsKeys& asked, std::span<const uint8_t> there) const {
  // The first question has counted the keys, and the pages that were there.
  const bool again = asked.context.wait.again;
  Looked looked{.asked = again ? 0 : count_undecided(asked.keys)};
  const std::vector<LoadPlace> places = asked.places();
  for (size_t i = asked.before; i < asked.told(); ++i) {
    if (asked.present[i] != 0) {
      ++looked.found[static_cast<size_t>(places[i].source)];
    } else {
      looked.add_evicted(look.pool.evicted().pools_needed(asked.digests[i]));
    }
  }
  if (again) return looked;
  // With a larger pool the prefix would go on, up to the first key that it would not have either.
  std::array<bool, kLargerPools.size()> ended{};
  for (size_t i = asked.told(); i < asked.keys.size() && !ended.back(); ++i) {
    const unsigned needed = there[i] != 0 ? 1 : look.pool.evicted().pools_needed(asked.digests[i]);
    for (size_t size = 0; size < kLargerPools.size(); ++size) {
      const bool has = needed != 0 && needed <= kLargerPools[size];
      ended[size] = ended[size] || !has;
      if (!ended[size]) ++looked.evicted[size];
    }
  }
  return looked;
}

}  // namespace peercached
