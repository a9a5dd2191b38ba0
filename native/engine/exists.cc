// exists, remove and clear.

#include <algorithm>
#include <cstring>
#include <map>

#include "engine/digests.h"
#include "engine/engine.h"
#include "engine/promote_payload.h"

namespace peercached {

namespace {

constexpr int kRemoveAttempts = 4;

// Appends the whole items of an answer. An empty answer has no memory to copy from.
template <typename Item>
void append_items(std::vector<Item>& items, std::span<const std::byte> packed) {
  const size_t count = packed.size() / sizeof(Item);
  if (count == 0) return;
  items.resize(items.size() + count);
  std::memcpy(items.data() + items.size() - count, packed.data(), count * sizeof(Item));
}

}  // namespace

ExistsAnswer Engine::exists(const RequestContext& context, std::span<PageRef> keys, bool all) {
  const Timed timed(latencies_.exists);
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  ExistsAnswer answer;
  answer.present.assign(keys.size(), 0);
  if (!serving_.load(std::memory_order_acquire)) return answer;

  pool_->contains(digests, true, answer.present);
  // Pages on our disk only are hits, but slow ones. Those reported to the caller are promoted now.
  std::vector<uint8_t> on_disk(keys.size(), 0);
  const bool all_here =
      std::find(answer.present.begin(), answer.present.end(), 0) == answer.present.end();
  if (!all_here && cold_->readable()) {
    std::vector<uint8_t> here = answer.present;
    cold_->find_all(digests, here);
    for (size_t i = 0; i < keys.size(); ++i) on_disk[i] = here[i] != answer.present[i];
    answer.present = std::move(here);
  }
  std::vector<Digest> missing;
  std::vector<size_t> index;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) {  // a bad key is nowhere, and ends the prefix
      answer.present[i] = 0;
      if (!all) break;
      continue;
    }
    if (answer.present[i] == 0) {
      missing.push_back(digests[i]);
      index.push_back(i);
    }
  }
  std::vector<RecordRow> rows(missing.size());
  if (!missing.empty()) {
    std::vector<PageStatus> why(missing.size());
    locate(missing, {}, Trust::recent, context.deadline, rows, why, nullptr, !all);
    for (size_t k = 0; k < missing.size(); ++k) {
      // The holder must be readable, not merely known: a hit is a promise.
      answer.present[index[k]] = rows[k].holder != kNoHolder && nodes_.readable(rows[k].holder);
    }
    // Stale: our own record of a page that was not here. It may have come since we looked.
    size_t elsewhere = 0;
    for (size_t k = 0; k < missing.size(); ++k) {
      uint8_t& present = answer.present[index[k]];
      if (why[k] == PageStatus::stale) pool_->contains({&missing[k], 1}, true, {&present, 1});
      if (why[k] == PageStatus::stale && present != 0) continue;
      index[elsewhere] = index[k];
      rows[elsewhere++] = rows[k];
    }
    index.resize(elsewhere);
    rows.resize(elsewhere);
  }
  const auto count_prefix = [&] {
    answer.prefix = 0;
    while (answer.prefix < keys.size() && answer.present[answer.prefix] != 0) ++answer.prefix;
  };
  count_prefix();
  // The caller is told of keys behind the first hole only if it asked for all.
  const size_t told = all ? keys.size() : answer.prefix;
  warm_present(digests, on_disk, index, rows, told, answer.present);
  if (context.hold_ms != 0) {
    std::fill(answer.present.begin() + told, answer.present.end(), 0);
    // Only pages in a pool are promised: a disk may take longer than the worker would wait.
    for (size_t i = 0; i < keys.size(); ++i) answer.present[i] &= on_disk[i] == 0;
    for (size_t k = 0; k < rows.size(); ++k) {
      if ((rows[k].flags & kRecordResident) == 0) answer.present[index[k]] = 0;
    }
    count_prefix();
    if (!all) std::fill(answer.present.begin() + answer.prefix, answer.present.end(), 0);
    hold_present(context, digests, index, rows, answer.present);
    count_prefix();
  }
  counters_.exists_keys.fetch_add(keys.size(), std::memory_order_relaxed);
  counters_.exists_hits.fetch_add(
      static_cast<uint64_t>(std::count(answer.present.begin(), answer.present.end(), 1)),
      std::memory_order_relaxed);
  return answer;
}

void Engine::warm_local(std::span<const Digest> digests) {
  std::vector<uint8_t> present(digests.size());
  pool_->contains(digests, true, present);
  counters_.used_elsewhere.fetch_add(
      static_cast<uint64_t>(std::count(present.begin(), present.end(), 1)),
      std::memory_order_relaxed);
  promoter_->warm(digests);
}

void Engine::warm_present(std::span<const Digest> digests, std::span<const uint8_t> on_disk,
                          std::span<const size_t> index, std::span<const RecordRow> rows,
                          size_t told, std::span<const uint8_t> present) {
  std::vector<Digest> here;
  for (size_t i = 0; i < told; ++i) {
    if (on_disk[i] != 0) here.push_back(digests[i]);
  }
  promoter_->warm(here);
  const TimePoint now = Clock::now();
  std::map<HolderIndex, std::vector<Digest>> elsewhere;
  for (size_t k = 0; k < index.size() && index[k] < told; ++k) {
    if (present[index[k]] == 0 || rows[k].flags & kRecordResident) continue;
    const Digest& digest = digests[index[k]];
    if (warm_wishes_.is_new(digest, now)) elsewhere[rows[k].holder].push_back(digest);
  }
  for (const auto& [holder, wanted] : elsewhere) {
    control_.post(EventKind::promote, promote_payload(holder, wanted));
  }
}

void Engine::hold_present(const RequestContext& context, std::span<const Digest> digests,
                          std::span<const size_t> index, std::span<const RecordRow> rows,
                          std::span<uint8_t> present) {
  // The keys that each holder is asked to hold. kSelfHolder is this node.
  std::map<HolderIndex, std::vector<size_t>> by_holder;
  std::vector<HolderIndex> holder_of(present.size(), kSelfHolder);
  for (size_t k = 0; k < index.size(); ++k) holder_of[index[k]] = rows[k].holder;
  for (size_t i = 0; i < present.size(); ++i) {
    if (present[i] != 0) by_holder[holder_of[i]].push_back(i);
  }
  struct Asked {
    std::vector<Digest> digests;
    std::vector<uint8_t> held;
  };
  std::map<HolderIndex, Asked> asked;
  std::vector<HoldBatch> batches;
  for (const auto& [holder, keys] : by_holder) {
    Asked& one = asked[holder];
    for (size_t i : keys) one.digests.push_back(digests[i]);
    one.held.assign(keys.size(), 0);
    if (holder == kSelfHolder) {
      hold_local(one.digests, context.hold_ms, one.held);
    } else {
      batches.push_back({holder, nodes_.incarnation(holder), one.digests, one.held});
    }
  }
  if (!batches.empty()) transfer_->hold(batches, context.hold_ms, context.deadline);
  for (const auto& [holder, keys] : by_holder) {
    for (size_t k = 0; k < keys.size(); ++k) {
      if (asked[holder].held[k] != 0) continue;
      present[keys[k]] = 0;
      if (holder != kSelfHolder) locations_.forget(digests[keys[k]]);
    }
  }
}

std::string Engine::remove(const RequestContext& context, std::span<PageRef> keys) {
  std::string text;
  for (int attempt = 1; attempt <= kRemoveAttempts; ++attempt) {
    if (remove_in_epoch(context, keys, text)) return text;
  }
  for (PageRef& key : keys) {
    if (key.status == PageStatus::pending) key.status = PageStatus::error;
  }
  return "the namespace is cleared again and again: remove once more";
}

bool Engine::remove_in_epoch(const RequestContext& context, std::span<PageRef> keys,
                             std::string& text) {
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  const RemovalQuestion question{context.ns->id(), ns.epoch};
  const auto head_bytes = std::as_bytes(std::span(&question, 1));
  std::vector<std::byte> asked(head_bytes.begin(), head_bytes.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) continue;
    const auto bytes = std::as_bytes(std::span(&digests[i], 1));
    asked.insert(asked.end(), bytes.begin(), bytes.end());
  }
  if (asked.size() == head_bytes.size()) return true;  // no valid key
  const auto answer = control_.ask(EventKind::remove, asked, context.deadline);
  RemovalAnswer head;
  std::vector<Digest> held;
  text = "this daemon's control plane did not answer in time";
  if (answer && answer->size() >= sizeof head) {
    std::memcpy(&head, answer->data(), sizeof head);
    const std::span<const std::byte> rest = std::span(*answer).subspan(sizeof head);
    const size_t bytes = std::min<size_t>(rest.size(), head.held * sizeof(Digest));
    append_items(held, rest.first(bytes));
    text.assign(reinterpret_cast<const char*>(rest.data() + bytes), rest.size() - bytes);
  }
  const auto outcome = static_cast<PageStatus>(head.status);
  if (outcome == PageStatus::stale) return false;
  std::sort(held.begin(), held.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) continue;
    const bool was_here = std::binary_search(held.begin(), held.end(), digests[i]);
    keys[i].status = outcome != PageStatus::ok ? outcome
                     : was_here                ? PageStatus::ok
                                               : PageStatus::absent;
  }
  return true;
}

std::string Engine::clear(const RequestContext& context) {
  const std::string& name = context.ns->name();
  std::vector<std::byte> question(sizeof context.user + name.size());
  std::memcpy(question.data(), &context.user, sizeof context.user);
  std::memcpy(question.data() + sizeof context.user, name.data(), name.size());
  auto answer = control_.ask(EventKind::clear, question, context.deadline);
  if (!answer) return "the control plane did not answer in time; call clear again";
  return {reinterpret_cast<const char*>(answer->data()), answer->size()};
}

}  // namespace peercached
