#include "kv_events/picture.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <unordered_set>

#include "common/foreign_text.h"

namespace peercached::kv_events {
namespace {

constexpr size_t kPagesPerLock = 512;
constexpr size_t kNamespaceTextMax = 1024;
constexpr uint16_t kNotNamed = 0xffff;  // of a page in an answer: it is not known

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

template <typename T>
void append_plain(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Reads an answer, which a peer may have made up.
class AnswerReader {
 public:
  explicit AnswerReader(std::span<const std::byte> left) : left_(left) {}
  template <typename T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take(size_t bytes) {
    if (left_.size() < bytes) throw std::invalid_argument("the answer with names ends too early");
    const auto taken = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return taken;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

}  // namespace

Picture::Picture(Identify identify) : identify_(std::move(identify)) {}

// --- what happens

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

// --- telling

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

void Picture::ask_others(std::span<const Digest> digests) {
  for (const Digest& digest : digests) {
    Shard& shard = shard_of(digest);
    std::lock_guard lock(shard.mutex);
    const auto at = shard.pages.find(digest);
    if (at == shard.pages.end()) continue;
    at->second.asking = false;
    if (at->second.holdings.empty())
      drop_if_void(shard, at);
    else
      mark(shard, digest, at->second);
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

void Picture::ask_for(const Digest& digest, Page& page) {
  bool is_ours = false;
  for (const Holding& holding : page.holdings) {
    if (holding.slot >= slot_at_.size() || !slot_at_[holding.slot]->tellable) continue;
    Slot& slot = *slot_at_[holding.slot];
    is_ours |= slot.holder == kSelfHolder;
    if (slot.holder == kSelfHolder || holding.nameless) continue;
    slot.to_ask.push_back(digest);
    page.asking = true;
    return;
  }
  if (page.named) return;  // by its digest, until somebody gives a name
  page.asking = true;
  own_unnamed_.push_back(digest);  // finds nothing if it is not ours
  if (!is_ours) counts_.unnamed.fetch_add(1, std::memory_order_relaxed);
}

void Picture::identify_own() {
  const std::vector<Digest> digests = std::exchange(own_unnamed_, {});
  if (digests.empty()) return;
  std::vector<NamespaceOf> found(digests.size());
  identify_(digests, found);
  for (size_t i = 0; i < digests.size(); ++i) learn(digests[i], found[i], {}, 0, kSelfHolder);
}

void Picture::learn(const Digest& digest, const NamespaceOf& ns, const PageName& name,
                    uint16_t block_tokens, HolderIndex holder) {
  const NamespaceNumber number = number_of(ns);
  const SlotNumber slot =
      holder < kNodesMax ? slot_by_holder_[holder].load(std::memory_order_acquire) : SlotNumber{0};
  Shard& shard = shard_of(digest);
  std::lock_guard lock(shard.mutex);
  const auto at = shard.pages.find(digest);
  if (at == shard.pages.end()) return;
  Page& page = at->second;
  page.asking = false;
  if (!page.named) {
    if (number != 0) {
      page.ns = number;
      page.epoch = ns.epoch;
    }
    if (name.kind != kNoName || holder == kSelfHolder) {
      page.name = name;
      page.block_tokens = block_tokens;
      page.named = true;
      if (name.kind == kNoName) counts_.by_digest.fetch_add(1, std::memory_order_relaxed);
    }
  } else if (page.name.kind == kNoName && name.kind != kNoName) {
    shard.later_names[digest] = {name, block_tokens, number, ns.epoch};
  }
  if (name.kind == kNoName)
    for (Holding& holding : page.holdings) holding.nameless |= holding.slot == slot;
  if (page.holdings.empty())
    drop_if_void(shard, at);
  else
    mark(shard, digest, page);
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

// --- names of other nodes' pages

std::vector<NameQuestion> Picture::questions() {
  std::vector<NameQuestion> questions;
  std::scoped_lock lock(tell_mutex_, slots_mutex_);
  for (size_t i = 1; i < slot_at_.size(); ++i) {
    Slot& slot = *slot_at_[i];
    if (!slot.tellable || slot.asking || slot.to_ask.empty()) continue;
    NameQuestion& question = questions.emplace_back();
    question.holder = slot.holder;
    const size_t count = std::min(slot.to_ask.size(), kNamesPerQuestion);
    question.digests.assign(slot.to_ask.end() - static_cast<ptrdiff_t>(count), slot.to_ask.end());
    slot.to_ask.resize(slot.to_ask.size() - count);
    slot.asking = true;
    counts_.names_asked.fetch_add(count, std::memory_order_relaxed);
  }
  return questions;
}

void Picture::stop_asking(HolderIndex holder) {
  std::scoped_lock lock(tell_mutex_, slots_mutex_);
  for (Slot* slot : slot_at_)
    if (slot != nullptr && slot->holder == holder) slot->asking = false;
}

void Picture::answered(HolderIndex holder, std::span<const Digest> asked,
                       std::span<const std::byte> answer) {
  struct Learnt {
    uint16_t ns = kNotNamed;
    uint16_t block_tokens = 0;
    PageName name{};
  };
  std::vector<NamespaceOf> namespaces;
  std::vector<Learnt> learnt;
  AnswerReader reader(answer);
  const auto count = reader.take<uint32_t>();
  if (count > asked.size())
    throw std::invalid_argument("the answer has more namespaces than names");
  for (uint32_t i = 0; i < count; ++i) {
    NamespaceOf& ns = namespaces.emplace_back();
    ns.id = reader.take<Digest>();
    ns.epoch = reader.take<uint64_t>();
    const auto size = reader.take<uint32_t>();
    if (size > kNamespaceTextMax) throw std::invalid_argument("a namespace's name is too long");
    const auto text = reader.take(size);
    ns.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
    if (!is_presentable(ns.text)) throw std::invalid_argument("a namespace's name is no text");
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    Learnt& one = learnt.emplace_back();
    one.ns = reader.take<uint16_t>();
    const auto kind = reader.take<uint8_t>();
    one.block_tokens = reader.take<uint16_t>();
    if (one.ns != kNotNamed && one.ns >= count)
      throw std::invalid_argument("a name is of a namespace that the answer does not have");
    if (name_bytes(kind) == kNotAKind)
      throw std::invalid_argument("a name of kind " + std::to_string(kind) + ": there is none");
    one.name = PageName::of(kind, reader.take(name_bytes(kind)).data());
  }
  if (!reader.empty()) throw std::invalid_argument("the answer with names has more bytes");
  for (size_t i = 0; i < asked.size(); ++i) {
    const Learnt& one = learnt[i];
    learn(asked[i], one.ns == kNotNamed ? NamespaceOf{} : namespaces[one.ns], one.name,
          one.block_tokens, holder);
  }
  stop_asking(holder);
}

void Picture::unanswered(HolderIndex holder, std::span<const Digest> asked) {
  ask_others(asked);
  stop_asking(holder);
}

std::vector<std::byte> Picture::names_of(std::span<const Digest> digests) const {
  struct Found {
    bool known = false;
    NamespaceNumber ns = 0;
    uint64_t epoch = 0;
    uint16_t block_tokens = 0;
    PageName name{};
  };
  std::vector<Found> found(digests.size());
  std::vector<Digest> unnamed;
  std::vector<size_t> places;
  for (size_t i = 0; i < digests.size(); ++i) {
    const Shard& shard = shard_of(digests[i]);
    std::lock_guard lock(shard.mutex);
    const auto at = shard.pages.find(digests[i]);
    if (at != shard.pages.end() && at->second.named && at->second.ns != 0) {
      const Page& page = at->second;
      found[i] = {true, page.ns, page.epoch, page.block_tokens, page.name};
      const auto later = shard.later_names.find(digests[i]);
      if (later != shard.later_names.end() && later->second.ns != 0) {
        const LaterName& one = later->second;
        found[i] = {true, one.ns, one.epoch, one.block_tokens, one.name};
      }
    } else {
      unnamed.push_back(digests[i]);
      places.push_back(i);
    }
  }
  std::vector<NamespaceOf> identified(unnamed.size());
  if (!unnamed.empty()) identify_(unnamed, identified);

  std::vector<NamespaceOf> namespaces;
  std::map<std::pair<Digest, uint64_t>, uint16_t> numbers;
  const auto number_in_answer = [&](NamespaceOf ns) {
    const auto [at, is_new] =
        numbers.try_emplace({ns.id, ns.epoch}, static_cast<uint16_t>(namespaces.size()));
    if (is_new) namespaces.push_back(std::move(ns));
    return at->second;
  };
  std::vector<std::byte> names;
  size_t next_unnamed = 0;
  for (size_t i = 0; i < digests.size(); ++i) {
    uint16_t ns = kNotNamed;
    if (found[i].known) {
      const NamespaceInfo info = info_of(found[i].ns);
      ns = number_in_answer({info.id, found[i].epoch, info.text});
    } else if (next_unnamed < places.size() && places[next_unnamed] == i) {
      NamespaceOf& one = identified[next_unnamed++];
      if (!(one.id == Digest{})) ns = number_in_answer(one);
    }
    append_plain(names, ns);
    append_plain(names, found[i].name.kind);
    append_plain(names, found[i].block_tokens);
    const auto bytes = found[i].name.span();
    names.insert(names.end(), bytes.begin(), bytes.end());
  }
  std::vector<std::byte> answer;
  append_plain(answer, static_cast<uint32_t>(namespaces.size()));
  for (const NamespaceOf& ns : namespaces) {
    append_plain(answer, ns.id);
    append_plain(answer, ns.epoch);
    append_plain(answer, static_cast<uint32_t>(ns.text.size()));
    const auto text = std::as_bytes(std::span(ns.text));
    answer.insert(answer.end(), text.begin(), text.end());
  }
  answer.insert(answer.end(), names.begin(), names.end());
  return answer;
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
