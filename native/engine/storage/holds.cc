#include "engine/storage/holds.h"

#include <algorithm>

namespace peercached {

namespace {

constexpr uint64_t kNamespaceShare = 2;  // of all pins one namespace has at most 1/2
constexpr uint64_t kQuotaShare = 2;      // and of its quota

}  // namespace

HoldTable::HoldTable(Pool& pool, size_t pages_max, uint64_t bytes_max)
    : pool_(pool), pages_max_(pages_max), bytes_max_(bytes_max) {}

HoldTable::~HoldTable() {
  std::vector<KeptPage> kept;
  for (const auto& [digest, entry] : held_) kept.push_back(entry.page);
  pool_.release(kept);
}

void HoldTable::count(const Held& entry, bool comes) {
  const auto change = [&](PinnedUse& use) {
    comes ? ++use.pages : --use.pages;
    use.bytes += comes ? entry.page.length : 0 - uint64_t{entry.page.length};
  };
  change(entry.pinned() ? pinned_use_ : held_use_);
  if (!entry.pinned()) return;
  const auto own = pinned_by_namespace_.try_emplace(entry.page.namespace_slot).first;
  change(own->second);
  if (own->second.pages == 0) pinned_by_namespace_.erase(own);
}

void HoldTable::put(Digest digest, const Held& entry) {
  if (const auto before = held_.find(digest); before != held_.end()) erase(before);
  held_.emplace(digest, entry);
  due_.emplace(entry.due(), digest);
  count(entry, true);
}

void HoldTable::erase(Table::iterator entry) {
  due_.erase({entry->second.due(), entry->first});
  count(entry->second, false);
  held_.erase(entry);
}

void HoldTable::forget_ended() {
  for (const KeptPage& page : pool_.take_ended()) {
    const auto entry = held_.find(page.digest);
    if (entry != held_.end() && entry->second.page.generation == page.generation) erase(entry);
  }
}

void HoldTable::keep(std::span<const Digest> digests, std::vector<KeptPage>& pages,
                     bool unless_leaving) {
  forget_ended();
  pages.resize(digests.size());
  pool_.keep(digests, pages, unless_leaving);
}

void HoldTable::hold(std::span<const Digest> digests, TimePoint until, std::span<uint8_t> held) {
  std::vector<KeptPage> pages, unneeded;
  std::lock_guard lock(mutex_);
  keep(digests, pages, false);
  for (size_t i = 0; i < digests.size(); ++i) {
    held[i] = 0;
    if (!pages[i]) continue;
    Held entry{pages[i], until, {}};
    if (const auto known = held_.find(digests[i]); known != held_.end()) {
      entry.held_until = std::max(known->second.held_until, until);
      entry.pinned_until = known->second.pinned_until;
    } else if (held_use_.pages >= pages_max_ || held_use_.bytes + pages[i].length > bytes_max_) {
      ++refused_;
      unneeded.push_back(pages[i]);
      continue;
    }
    put(digests[i], entry);
    held[i] = 1;
  }
  pool_.release(unneeded);
}

std::string HoldTable::why_no_pin(const KeptPage& page, uint64_t bytes_max) const {
  if (pinned_use_.pages >= pages_max_) {
    return std::to_string(pinned_use_.pages) +
           " pages are pinned here already: " + std::to_string(pages_max_) +
           " are the limit of a node";
  }
  const auto beyond = [&](uint64_t pinned, uint64_t limit, const char* whose, const char* why) {
    if (pinned + page.length <= limit) return std::string();
    return "a page of " + std::to_string(page.length) + " bytes beyond the " +
           std::to_string(pinned) + " bytes that " + whose +
           " pinned here: " + std::to_string(limit) + " are the limit (" + why + ")";
  };
  std::string why = beyond(pinned_use_.bytes, bytes_max, "all namespaces have", "pin_share");
  if (!why.empty()) return why;
  const auto found = pinned_by_namespace_.find(page.namespace_slot);
  const uint64_t own = found == pinned_by_namespace_.end() ? 0 : found->second.bytes;
  why = beyond(own, bytes_max / kNamespaceShare, "its namespace has", "half of pin_share");
  if (!why.empty()) return why;
  const uint64_t quota = pool_.use_of(page.namespace_slot).quota_bytes;
  return beyond(own, quota / kQuotaShare, "its namespace has", "half of its quota");
}

std::string HoldTable::pin(std::span<const Digest> digests, TimePoint until, uint64_t bytes_max,
                           std::span<PageStatus> statuses) {
  std::vector<KeptPage> pages, unneeded;
  std::string why;
  std::lock_guard lock(mutex_);
  keep(digests, pages, true);
  for (size_t i = 0; i < digests.size(); ++i) {
    statuses[i] = PageStatus::absent;
    if (!pages[i]) continue;
    const auto known = held_.find(digests[i]);
    const bool is_pinned = known != held_.end() && known->second.pinned();
    if (!is_pinned && why.empty()) why = why_no_pin(pages[i], bytes_max);
    if (!is_pinned && !why.empty()) {
      ++pins_refused_;
      statuses[i] = PageStatus::no_space;
      // It may be a newer page than the one that is held.
      if (known == held_.end() || known->second.page.generation != pages[i].generation)
        unneeded.push_back(pages[i]);
      continue;
    }
    put(digests[i],
        {pages[i], known != held_.end() ? known->second.held_until : TimePoint{}, until});
    statuses[i] = PageStatus::ok;
  }
  pool_.release(unneeded);
  return why;
}

void HoldTable::end_pin(Table::iterator found, TimePoint now, std::vector<KeptPage>& released) {
  Held entry = found->second;
  entry.pinned_until = {};
  if (entry.held_until > now) {
    put(found->first, entry);
  } else {
    released.push_back(entry.page);
    erase(found);
  }
}

void HoldTable::unpin(std::span<const Digest> digests, std::span<PageStatus> statuses) {
  std::vector<KeptPage> released;
  std::lock_guard lock(mutex_);
  forget_ended();
  const TimePoint now = Clock::now();
  for (size_t i = 0; i < digests.size(); ++i) {
    const auto found = held_.find(digests[i]);
    const bool is_pinned = found != held_.end() && found->second.pinned();
    statuses[i] = is_pinned ? PageStatus::ok : PageStatus::absent;
    if (is_pinned) end_pin(found, now, released);
  }
  pool_.release(released);
}

TimePoint HoldTable::expire(TimePoint now) {
  std::vector<KeptPage> released;
  std::lock_guard lock(mutex_);
  forget_ended();
  while (!due_.empty() && due_.begin()->first <= now)
    end_pin(held_.find(due_.begin()->second), now, released);
  pool_.release(released);
  return due_.empty() ? TimePoint::max() : due_.begin()->first;
}

HoldStats HoldTable::stats() {
  std::lock_guard lock(mutex_);
  forget_ended();
  return {held_use_.pages, held_use_.bytes, refused_, pinned_use_, pins_refused_};
}

std::vector<PinRow> HoldTable::pins(size_t limit, uint32_t namespace_slot) {
  std::vector<PinRow> rows;
  std::lock_guard lock(mutex_);
  forget_ended();
  for (auto at = due_.begin(); at != due_.end() && rows.size() < limit; ++at) {
    const Held& entry = held_.at(at->second);
    if (!entry.pinned()) continue;
    if (namespace_slot != 0 && entry.page.namespace_slot != namespace_slot) continue;
    rows.push_back({at->second, entry.page.length, entry.page.namespace_slot, entry.pinned_until});
  }
  return rows;
}

std::map<uint32_t, PinnedUse> HoldTable::pinned_by_namespace() {
  std::lock_guard lock(mutex_);
  forget_ended();
  return pinned_by_namespace_;
}

}  // namespace peercached
