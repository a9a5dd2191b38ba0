// Telling: the difference between what is and what subscribers have been told.

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kv_events/picture.h"

namespace peercached::kv_events {
namespace {

constexpr size_t kPagesPerLock = 512;

}  // namespace

bool Picture::is_void(const Page& page) {
  while (seen_.size() <= page.ns) seen_.push_back(info_of(static_cast<uint32_t>(seen_.size())));
  return page.epoch < seen_[page.ns].epoch;
}

const std::string& Picture::topic(SlotNumber slot, NamespaceNumber ns) {
  std::string& topic = topics_[uint64_t{slot} << 32 | ns];
  if (topic.empty()) {
    while (seen_.size() <= ns) seen_.push_back(info_of(static_cast<uint32_t>(seen_.size())));
    topic = topic_of(slot_at_[slot]->node, seen_[ns].told_as);
  }
  return topic;
}

void Picture::set_told(Page& page, Holding& holding, Tier tier) {
  if ((holding.told == Tier::none) != (tier == Tier::none)) {
    auto& told = slot_at_[holding.slot]->told;
    if (tier != Tier::none) {
      ++told[page.ns];
      counts_.told.fetch_add(1, std::memory_order_relaxed);
    } else {
      if (const auto count = told.find(page.ns); count != told.end() && --count->second == 0)
        told.erase(count);
      counts_.told.fetch_sub(1, std::memory_order_relaxed);
    }
  }
  holding.told = tier;
}

// Of a sweep over all pages, before anything else is told.
struct Picture::Sweep {
  std::unordered_set<SlotNumber> cleared, dead, fresh;
  std::unordered_set<NamespaceNumber> renamed, raised;
  bool empty() const {
    return cleared.empty() && fresh.empty() && renamed.empty() && raised.empty();
  }
};

void Picture::look_at_slots(std::span<const LiveNode> live, TimePoint now, Clock::duration patience,
                            Sweep& sweep) {
  std::unordered_map<HolderIndex, const LiveNode*> by_holder;
  for (const LiveNode& node : live) by_holder.emplace(node.holder, &node);
  std::lock_guard lock(slots_mutex_);
  slot_at_.resize(slots_.size());
  for (size_t i = 1; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot_at_[i] = &slot;
    if (!slot.used) continue;
    const auto number = static_cast<SlotNumber>(i);
    if (slot.dead) {
      slot.tellable = false;
      sweep.cleared.insert(number);
      sweep.dead.insert(number);
      continue;
    }
    const auto node = by_holder.find(slot.holder);
    if (node != by_holder.end()) {
      slot.missing = false;
      if (slot.tellable) continue;
      slot.tellable = true;
      slot.node = node->second->id;
      sweep.fresh.insert(number);
    } else if (!slot.missing) {
      slot.missing = true;
      slot.missing_since = now;
    } else if (slot.tellable && now - slot.missing_since >= patience) {
      slot.tellable = false;
      sweep.cleared.insert(number);
    }
  }
}

void Picture::look_at_namespaces(Sweep& sweep) {
  if (!any_stale_.exchange(false, std::memory_order_acq_rel)) return;
  std::lock_guard lock(namespaces_mutex_);
  for (NamespaceNumber number = 1; number < namespaces_.size(); ++number) {
    NamespaceInfo& info = namespaces_[number];
    if (!info.stale) continue;
    info.stale = false;
    const std::string& wanted = info.text.empty() ? info.told_as : info.text;
    if (info.told_as != wanted) sweep.renamed.insert(number);
    if (seen_.size() <= number || seen_[number].epoch < info.epoch) sweep.raised.insert(number);
  }
}

void Picture::sweep_all(Sweep& sweep) {
  const auto clear = [&](SlotNumber slot, NamespaceNumber ns) {
    writer_.cleared(topic(slot, ns));
    counts_.cleared.fetch_add(1, std::memory_order_relaxed);
  };
  std::vector<Digest> unasked;
  for (const SlotNumber slot : sweep.cleared) {
    for (const auto& [ns, count] : slot_at_[slot]->told) clear(slot, ns);
    const auto digests = std::exchange(slot_at_[slot]->to_ask, {});
    unasked.insert(unasked.end(), digests.begin(), digests.end());
  }
  for (size_t number = 1; number < slot_at_.size(); ++number) {
    const auto slot = static_cast<SlotNumber>(number);
    if (sweep.cleared.contains(slot)) continue;
    for (const auto& [ns, count] : slot_at_[slot]->told)
      if (sweep.renamed.contains(ns)) clear(slot, ns);
  }
  if (!sweep.renamed.empty() || !sweep.raised.empty()) {
    std::lock_guard lock(namespaces_mutex_);
    for (const NamespaceNumber ns : sweep.renamed) namespaces_[ns].told_as = namespaces_[ns].text;
    seen_.assign(namespaces_.begin(), namespaces_.end());
    if (!sweep.renamed.empty()) topics_.clear();
  }
  for (Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    std::vector<Digest> void_pages;
    for (auto& [digest, page] : shard.pages) {
      const bool renamed = sweep.renamed.contains(page.ns), raised = sweep.raised.contains(page.ns);
      for (Holding& holding : page.holdings) {
        if (sweep.cleared.contains(holding.slot) || renamed) {
          set_told(page, holding, Tier::none);
        } else if (raised && holding.told != Tier::none) {
          // Also of pages that are not void: a void page may have had the same name.
          if (is_void(page)) tell_removed(digest, page, holding);
          set_told(page, holding, Tier::none);
        }
        if (renamed || raised || sweep.fresh.contains(holding.slot)) mark(shard, digest, page);
      }
      if (sweep.dead.empty()) continue;
      std::erase_if(page.holdings,
                    [&](const Holding& one) { return sweep.dead.contains(one.slot); });
      if (page.holdings.empty()) void_pages.push_back(digest);
    }
    for (const Digest& digest : void_pages) {
      const auto page = shard.pages.find(digest);
      if (page != shard.pages.end()) drop_if_void(shard, page);
    }
  }
  ask_others(unasked);
  if (sweep.dead.empty()) return;
  std::lock_guard lock(slots_mutex_);
  for (const SlotNumber slot : sweep.dead) {
    slots_[slot] = Slot{};
    std::erase_if(topics_, [&](const auto& topic) { return topic.first >> 32 == slot; });
  }
}

void Picture::drop_if_void(Shard& shard, Pages::iterator at) {
  Page& page = at->second;
  if (!page.holdings.empty() || page.asking || page.unheld) return;
  if (page.named && page.name.kind != kNoName)
    keep_unheld(shard, at->first, page);
  else
    shard.pages.erase(at);
}

void Picture::tell_removed(const Digest& digest, const Page& page, const Holding& holding) {
  const PageName name = page.name.kind == kNoName ? PageName::of(digest) : page.name;
  const bool local = slot_at_[holding.slot]->holder == kSelfHolder;
  writer_.removed(topic(holding.slot, page.ns), local, holding.told, name);
  counts_.removed.fetch_add(1, std::memory_order_relaxed);
}

void Picture::tell_stored(const Digest& digest, const Page& page, SlotNumber slot, Tier tier) {
  const PageName name = page.name.kind == kNoName ? PageName::of(digest) : page.name;
  const bool local = slot_at_[slot]->holder == kSelfHolder;
  writer_.stored(topic(slot, page.ns), local, tier, page.block_tokens, name);
  counts_.stored.fetch_add(1, std::memory_order_relaxed);
}

void Picture::rename(const Digest& digest, Page& page, const LaterName& later) {
  if (page.named && page.name.kind != kNoName) return;
  for (Holding& holding : page.holdings) {
    if (holding.told == Tier::none) continue;
    tell_removed(digest, page, holding);
    set_told(page, holding, Tier::none);
  }
  page.name = later.name;
  page.block_tokens = later.block_tokens;
  page.ns = later.ns;
  page.epoch = later.epoch;
  page.named = true;
}

void Picture::tell(const Digest& digest, Page& page) {
  page.dirty = false;
  const bool hidden = page.named && (page.name.kind == kUntold || is_void(page));
  bool unnamed = false;
  for (Holding& holding : page.holdings) {
    if (holding.slot >= slot_at_.size() || !slot_at_[holding.slot]->tellable) continue;
    const Tier tier = hidden ? Tier::none : holding.tier;
    if (tier == holding.told) continue;
    if (!page.named) {
      unnamed = true;
      continue;
    }
    if (holding.told != Tier::none) tell_removed(digest, page, holding);
    if (tier != Tier::none) tell_stored(digest, page, holding.slot, tier);
    set_told(page, holding, tier);
  }
  // During a scan, a page of ours that went must not come back with a row that is older.
  const SlotNumber buried = scanning_.load(std::memory_order_acquire)
                                ? slot_by_holder_[kSelfHolder].load()
                                : SlotNumber{0};
  std::erase_if(page.holdings, [&](const Holding& one) {
    if (one.tier != Tier::none || one.told != Tier::none) return false;
    if (one.slot != buried) return true;
    std::lock_guard lock(tombs_mutex_);
    tombs_.push_back(digest);
    return false;
  });
  const bool by_digest = page.named && page.name.kind == kNoName;
  if ((unnamed || by_digest) && !page.asking) ask_for(digest, page);
}

bool Picture::tell_dirty(Shard& shard, size_t bytes_max) {
  while (true) {
    std::lock_guard lock(shard.mutex);
    for (size_t i = 0; i < kPagesPerLock; ++i) {
      if (shard.dirty.empty()) return true;
      if (writer_.bytes() >= bytes_max) return false;
      const Digest digest = shard.dirty.back();
      shard.dirty.pop_back();
      const auto page = shard.pages.find(digest);
      const auto later = shard.later_names.extract(digest);
      if (page == shard.pages.end()) continue;
      if (!later.empty()) rename(digest, page->second, later.mapped());
      tell(digest, page->second);
      drop_if_void(shard, page);
    }
  }
}

Picture::Drained Picture::drain(std::span<const LiveNode> live, TimePoint now, double unix_time,
                                size_t bytes_max, Clock::duration patience) {
  std::lock_guard lock(tell_mutex_);
  writer_.begin(unix_time);
  Sweep sweep;
  look_at_slots(live, now, patience, sweep);
  look_at_namespaces(sweep);
  if (!sweep.empty()) sweep_all(sweep);
  Drained drained;
  // Twice: pages of ours that had no name have one after the first round.
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kShards && !drained.more; ++i) {
      drained.more = !tell_dirty(shards_[next_shard_], bytes_max);
      if (!drained.more) next_shard_ = (next_shard_ + 1) % kShards;
    }
    if (own_unnamed_.empty()) break;
    identify_own();
  }
  drained.batches = writer_.take();
  return drained;
}

std::vector<Batch> Picture::snapshot(double unix_time) {
  std::lock_guard lock(tell_mutex_);
  writer_.begin(unix_time);
  writer_.cleared("kv@");
  for (size_t number = 1; number < slot_at_.size(); ++number) {
    const auto slot = static_cast<SlotNumber>(number);
    for (const auto& [ns, count] : slot_at_[slot]->told) writer_.cleared(topic(slot, ns));
  }
  for (const Shard& shard : shards_) {
    std::lock_guard shard_lock(shard.mutex);
    for (const auto& [digest, page] : shard.pages) {
      const PageName name = page.name.kind == kNoName ? PageName::of(digest) : page.name;
      for (const Holding& holding : page.holdings) {
        if (holding.told == Tier::none) continue;
        const bool local = slot_at_[holding.slot]->holder == kSelfHolder;
        writer_.stored(topic(holding.slot, page.ns), local, holding.told, page.block_tokens, name);
      }
    }
  }
  return writer_.take();
}

}  // namespace peercached::kv_events
