#include "engine/paths/exists_path.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "engine/control/payload.h"
#include "engine/paths/digests.h"
#include "engine/storage/namespaces.h"

namespace peercached {

struct ExistsPath::Run {
  const Parts& parts;
  RecentWishes& warm_wishes;
  const RequestContext& context;
  std::span<const PageRef> keys;
  std::span<const Digest> digests;
  const bool all;

  ExistsAnswer answer{};
  std::vector<uint8_t> on_disk{};  // by key: 1 if it is on our disk only
  // Keys that are not here. rows[k] is the record of the index[k]-th key, or has no holder.
  std::vector<size_t> index{};
  std::vector<RecordRow> rows{};

  void look_here();
  void list_missing();
  void look_elsewhere();
  void count_prefix();
  // The caller is told of keys behind the first hole only if it asked for all.
  size_t told() const { return all ? keys.size() : answer.prefix; }
  // Has hits among the keys that are told promoted if they are on a disk only, ours or another's.
  void warm();
  // Only pages that are held from now on stay present.
  void keep_held();
  // Clears present[] of pages that could not be held, here or elsewhere.
  void hold();
  void add_lengths();
  // What the caller asked for and is told. `there`: the keys present before any were held.
  Looked looked(std::span<const uint8_t> there) const;
};

void ExistsPath::Run::look_here() {
  answer.present.assign(keys.size(), 0);
  parts.pool.contains(digests, true, answer.present);
  // Pages on our disk only are hits, but slow ones. Those reported to the caller are promoted now.
  on_disk.assign(keys.size(), 0);
  const bool all_here =
      std::find(answer.present.begin(), answer.present.end(), 0) == answer.present.end();
  if (all_here || !parts.cold.readable()) return;
  std::vector<uint8_t> here = answer.present;
  parts.cold.find_all(digests, here);
  for (size_t i = 0; i < keys.size(); ++i) on_disk[i] = here[i] != answer.present[i];
  answer.present = std::move(here);
}

void ExistsPath::Run::list_missing() {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) {  // a bad key is nowhere, and ends the prefix
      answer.present[i] = 0;
      if (!all) break;
    } else if (answer.present[i] == 0) {
      index.push_back(i);
    }
  }
}

void ExistsPath::Run::look_elsewhere() {
  if (index.empty()) return;
  std::vector<Digest> missing;
  for (size_t i : index) missing.push_back(digests[i]);
  rows.resize(missing.size());
  std::vector<PageStatus> why(missing.size());
  parts.locator.locate(missing, {}, Trust::recent, context.deadline, rows, why, nullptr, !all);
  size_t elsewhere = 0;
  for (size_t k = 0; k < missing.size(); ++k) {
    uint8_t& present = answer.present[index[k]];
    // The holder must be readable, not merely known: a hit is a promise.
    present = rows[k].holder != kNoHolder && parts.nodes.readable(rows[k].holder);
    // Stale: our own record of a page that was not here. It may have come since we looked.
    if (why[k] == PageStatus::stale) {
      parts.pool.contains({&missing[k], 1}, true, {&present, 1});
      if (present != 0) continue;
    }
    index[elsewhere] = index[k];
    rows[elsewhere++] = rows[k];
  }
  index.resize(elsewhere);
  rows.resize(elsewhere);
}

void ExistsPath::Run::count_prefix() {
  answer.prefix = 0;
  while (answer.prefix < keys.size() && answer.present[answer.prefix] != 0) ++answer.prefix;
}

void ExistsPath::Run::warm() {
  std::vector<Digest> here;
  for (size_t i = 0; i < told(); ++i) {
    if (on_disk[i] != 0) here.push_back(digests[i]);
  }
  parts.promoter.warm(here);
  const TimePoint now = Clock::now();
  std::map<HolderIndex, std::vector<Digest>> elsewhere;
  for (size_t k = 0; k < index.size() && index[k] < told(); ++k) {
    if (answer.present[index[k]] == 0 || rows[k].flags & kRecordResident) continue;
    const Digest& digest = digests[index[k]];
    if (warm_wishes.is_new(digest, now)) elsewhere[rows[k].holder].push_back(digest);
  }
  for (const auto& [holder, wanted] : elsewhere) {
    parts.control.post(EventKind::promote, payload_of(PromoteQuestion{holder}, wanted));
  }
}

void ExistsPath::Run::keep_held() {
  std::fill(answer.present.begin() + static_cast<ptrdiff_t>(told()), answer.present.end(), 0);
  // Only pages in a pool are promised: a disk may take longer than the worker would wait.
  for (size_t i = 0; i < keys.size(); ++i) answer.present[i] &= on_disk[i] == 0;
  for (size_t k = 0; k < rows.size(); ++k) {
    if ((rows[k].flags & kRecordResident) == 0) answer.present[index[k]] = 0;
  }
  count_prefix();
  std::fill(answer.present.begin() + static_cast<ptrdiff_t>(told()), answer.present.end(), 0);
  hold();
  count_prefix();
}

void ExistsPath::Run::hold() {
  // The keys that each holder is asked to hold. kSelfHolder is this node.
  std::map<HolderIndex, std::vector<size_t>> by_holder;
  std::vector<HolderIndex> holder_of(keys.size(), kSelfHolder);
  for (size_t k = 0; k < index.size(); ++k) holder_of[index[k]] = rows[k].holder;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (answer.present[i] != 0) by_holder[holder_of[i]].push_back(i);
  }
  struct Asked {
    std::vector<Digest> digests;
    std::vector<uint8_t> held;
  };
  std::map<HolderIndex, Asked> asked;
  std::vector<HoldBatch> batches;
  for (const auto& [holder, wanted] : by_holder) {
    Asked& one = asked[holder];
    for (size_t i : wanted) one.digests.push_back(digests[i]);
    one.held.assign(wanted.size(), 0);
    if (holder == kSelfHolder) {
      parts.local.hold(one.digests, context.hold_ms, one.held);
    } else {
      batches.push_back({holder, parts.nodes.incarnation(holder), one.digests, one.held});
    }
  }
  if (!batches.empty()) parts.transfer.hold(batches, context.hold_ms, context.deadline);
  for (const auto& [holder, wanted] : by_holder) {
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (asked[holder].held[k] != 0) continue;
      answer.present[wanted[k]] = 0;
      if (holder != kSelfHolder) parts.locations.forget(digests[wanted[k]]);
    }
  }
}

void ExistsPath::Run::add_lengths() {
  answer.lengths.assign(keys.size(), 0);
  parts.pool.lengths(digests, answer.lengths);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (on_disk[i] == 0 || answer.lengths[i] != 0) continue;
    if (const auto page = parts.cold.find(digests[i])) answer.lengths[i] = page->length;
  }
  for (size_t k = 0; k < index.size(); ++k) {
    if (answer.lengths[index[k]] == 0) answer.lengths[index[k]] = rows[k].length;
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (answer.present[i] == 0) answer.lengths[i] = 0;
  }
}

Looked ExistsPath::Run::looked(std::span<const uint8_t> there) const {
  Looked looked{.asked = count_undecided(keys)};
  std::vector<Source> source(keys.size(), Source::pool);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (on_disk[i] != 0) source[i] = Source::disk;
  }
  for (size_t k = 0; k < index.size(); ++k) {
    source[index[k]] = rows[k].flags & kRecordResident ? Source::peer : Source::peer_disk;
  }
  for (size_t i = 0; i < told(); ++i) {
    if (answer.present[i] != 0) {
      ++looked.found[static_cast<size_t>(source[i])];
    } else {
      looked.add_evicted(parts.pool.evicted().pools_needed(digests[i]));
    }
  }
  // With a larger pool the prefix would go on, up to the first key that it would not have either.
  std::array<bool, kLargerPools.size()> ended{};
  for (size_t i = told(); i < keys.size() && !ended.back(); ++i) {
    const unsigned needed = there[i] != 0 ? 1 : parts.pool.evicted().pools_needed(digests[i]);
    for (size_t size = 0; size < kLargerPools.size(); ++size) {
      const bool has = needed != 0 && needed <= kLargerPools[size];
      ended[size] = ended[size] || !has;
      if (!ended[size]) ++looked.evicted[size];
    }
  }
  return looked;
}

ExistsAnswer ExistsPath::exists(const RequestContext& context, std::span<PageRef> keys, bool all) {
  const Timed timed(parts_.latencies.exists);
  if (!parts_.serving.on()) {
    return {0, std::vector<uint8_t>(keys.size(), 0)};
  }
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  Run run{parts_, warm_wishes_, context, keys, digests, all};
  run.look_here();
  run.list_missing();
  run.look_elsewhere();
  run.count_prefix();
  run.warm();
  const std::vector<uint8_t> there = run.answer.present;
  if (context.hold_ms != 0) run.keep_held();
  if (context.lengths) run.add_lengths();
  const Looked looked = run.looked(there);
  parts_.counters.demand.add(looked, context.page);
  context.ns->demand().add(looked, context.page);
  return std::move(run.answer);
}

}  // namespace peercached
