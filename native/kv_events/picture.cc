// Changes of pages: records, names that workers give, clears. See picture.h.
#include "kv_events/picture.h"

#include <algorithm>
#include <utility>

namespace peercached::kv_events {
namespace {

std::string hexadecimal(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&digest);
  for (size_t i = 0; i < sizeof digest; ++i) {
    text.push_back(kDigits[bytes[i] >> 4]);
    text.push_back(kDigits[bytes[i] & 15]);
  }
  return text;
}

}  // namespace

Picture::Picture(Identify identify) : identify_(std::move(identify)) {}

Picture::SlotNumber Picture::slot_of(HolderIndex holder) {
  if (holder >= kNodesMax) return 0;
  if (const SlotNumber slot = slot_by_holder_[holder].load(std::memory_order_acquire); slot != 0)
    return slot;
  std::lock_guard lock(slots_mutex_);
  size_t free = 1;
  while (free < slots_.size() && slots_[free].used) ++free;
  if (free > UINT16_MAX) return 0;
  if (free == slots_.size()) slots_.emplace_back();
  slots_[free].used = true;
  slots_[free].holder = holder;
  slot_by_holder_[holder].store(static_cast<SlotNumber>(free), std::memory_order_release);
  return static_cast<SlotNumber>(free);
}

void Picture::forget(HolderIndex holder) {
  if (holder >= kNodesMax) return;
  std::lock_guard lock(slots_mutex_);
  const SlotNumber slot = slot_by_holder_[holder].exchange(0, std::memory_order_acq_rel);
  if (slot == 0) return;
  slots_[slot].dead = true;
}

Picture::NamespaceNumber Picture::number_of(const NamespaceOf& ns) {
  if (ns.id == Digest{}) return 0;
  std::lock_guard lock(namespaces_mutex_);
  const auto known = namespace_numbers_.find(ns.id);
  if (known == namespace_numbers_.end()) {
    if (namespaces_.size() > kNamespacesMax) return 0;
    const auto number = static_cast<NamespaceNumber>(namespaces_.size());
    NamespaceInfo& info = namespaces_.emplace_back();
    info.id = ns.id;
    info.text = ns.text;
    info.told_as = ns.text.empty() ? hexadecimal(ns.id) : ns.text;
    namespace_numbers_.emplace(ns.id, number);
    return number;
  }
  NamespaceInfo& info = namespaces_[known->second];
  if (info.text.empty() && !ns.text.empty()) {
    info.text = ns.text;
    info.stale = true;
    any_stale_.store(true, std::memory_order_release);
  }
  return known->second;
}

Picture::NamespaceInfo Picture::info_of(NamespaceNumber number) const {
  std::lock_guard lock(namespaces_mutex_);
  return namespaces_[number];
}

void Picture::epoch_raised(const Digest& namespace_id, uint64_t epoch) {
  const NamespaceNumber number = number_of({namespace_id, 0, {}});
  if (number == 0) return;
  std::lock_guard lock(namespaces_mutex_);
  NamespaceInfo& info = namespaces_[number];
  if (epoch <= info.epoch) return;
  info.epoch = epoch;
  info.stale = true;
  any_stale_.store(true, std::memory_order_release);
}

void Picture::mark(Shard& shard, const Digest& digest, Page& page) {
  if (page.dirty) return;
  page.dirty = true;
  shard.dirty.push_back(digest);
}

void Picture::keep_unheld(Shard& shard, const Digest& digest, Page& page) {
  if (page.unheld) return;
  page.unheld = true;
  shard.unheld.push_back(digest);
  while (shard.unheld.size() > kUnheldMax) {
    const auto oldest = shard.pages.find(shard.unheld.front());
    shard.unheld.pop_front();
    if (oldest == shard.pages.end()) continue;
    oldest->second.unheld = false;
    if (oldest->second.holdings.empty() && !oldest->second.asking) shard.pages.erase(oldest);
  }
}

void Picture::named(const NamespaceOf& ns, std::span<const Digest> digests,
                    const GivenNames& names) {
  const NamespaceNumber number = number_of(ns);
  size_t at = 0;
  for (size_t i = 0; i < digests.size(); ++i) {
    PageName name;
    if (!names.kinds.empty()) {
      name = PageName::of(names.kinds[i], names.bytes.data() + at);
      at += name_bytes(names.kinds[i]);
    }
    if (digests[i] == Digest{}) continue;
    Shard& shard = shard_of(digests[i]);
    std::lock_guard lock(shard.mutex);
    Page& page = shard.pages[digests[i]];
    if (page.named && name.kind == kNoName) continue;
    if (page.named && page.told()) {
      // It keeps a name that was given. Its digest was no such name.
      if (page.name.kind != kNoName) continue;
      shard.later_names[digests[i]] = {name, names.block_tokens, number, ns.epoch};
      mark(shard, digests[i], page);
      continue;
    }
    page.name = name;
    page.block_tokens = names.block_tokens;
    page.ns = number;
    page.epoch = ns.epoch;
    page.named = true;
    if (name.kind == kNoName) counts_.by_digest.fetch_add(1, std::memory_order_relaxed);
    if (page.holdings.empty())
      keep_unheld(shard, digests[i], page);
    else
      mark(shard, digests[i], page);
  }
}

void Picture::changed(HolderIndex holder, std::span<const RecordRow> rows) {
  const SlotNumber slot = slot_of(holder);
  if (slot == 0) return;
  for (const RecordRow& row : rows) {
    Shard& shard = shard_of(row.digest);
    std::lock_guard lock(shard.mutex);
    change(shard, slot, row);
  }
}

void Picture::change(Shard& shard, SlotNumber slot, const RecordRow& row) {
  const bool gone = (row.flags & kRecordWithdraw) != 0;
  const bool buries = gone && scanning_.load(std::memory_order_acquire) &&
                      slot == slot_by_holder_[kSelfHolder].load(std::memory_order_acquire);
  const auto found = shard.pages.find(row.digest);
  if (found == shard.pages.end() && gone && !buries) return;
  Page& page = found == shard.pages.end() ? shard.pages[row.digest] : found->second;
  auto at = std::ranges::find(page.holdings, slot, &Holding::slot);
  if (at == page.holdings.end()) {
    if (gone && !buries) return;
    page.holdings.push_back({.slot = slot});
    at = page.holdings.end() - 1;
  } else if (gone ? row.generation < at->generation : row.generation <= at->generation) {
    return;
  }
  at->generation = row.generation;
  if ((row.flags & kRecordResident) != 0) at->nameless = false;  // it may have been set with a name
  at->tier = gone ? Tier::none : (row.flags & kRecordResident) != 0 ? Tier::pool : Tier::disk;
  mark(shard, row.digest, page);
}

void Picture::begin_scan() { scanning_.store(true, std::memory_order_release); }

void Picture::end_scan() {
  scanning_.store(false, std::memory_order_release);
  std::vector<Digest> tombs;
  {
    std::lock_guard lock(tombs_mutex_);
    tombs.swap(tombs_);
  }
  for (const Digest& digest : tombs) {
    Shard& shard = shard_of(digest);
    std::lock_guard lock(shard.mutex);
    if (const auto page = shard.pages.find(digest); page != shard.pages.end())
      mark(shard, digest, page->second);
  }
}

PictureStats Picture::stats() const {
  PictureStats stats;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    stats.pages += shard.pages.size();
  }
  stats.told = counts_.told.load(std::memory_order_relaxed);
  stats.stored = counts_.stored.load(std::memory_order_relaxed);
  stats.removed = counts_.removed.load(std::memory_order_relaxed);
  stats.cleared = counts_.cleared.load(std::memory_order_relaxed);
  stats.by_digest = counts_.by_digest.load(std::memory_order_relaxed);
  stats.names_asked = counts_.names_asked.load(std::memory_order_relaxed);
  stats.unnamed = counts_.unnamed.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace peercached::kv_events
