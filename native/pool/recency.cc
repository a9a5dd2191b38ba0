#include "pool/recency.h"

#include <algorithm>
#include <cassert>

namespace peercached {

namespace {
// An anchor is usable while at most 1/kAnchorShare of the pool was touched since. A page placed
// behind it is evicted that much too early.
constexpr uint64_t kAnchorShare = 4;

// If the anchor is of another class, the class list uses the nearest page of this class instead.
// The search ends after this many steps to bound the work; the lists may then differ slightly.
constexpr int kClassStepsMax = 16;

// Most steps from one aged page's place to the next. Bounds the time under the mutex.
constexpr int kAgedStepsMax = 4096;
// A duplicate counts as used after a tenth of the time since the use of the coldest page.
constexpr uint32_t kDuplicatesOlder = 10;

// Pinned pages to skip at the cold end of a namespace with a quota.
constexpr int kPinnedStepsMax = 1024;

// Kept pages to move from there to the hot end. Each is met once in a turn of the list. If they
// stayed, more of them than kPinnedStepsMax would hide all pages behind them.
constexpr int kKeptStepsMax = 16384;
}  // namespace

void Recency::committed(uint32_t id, uint32_t before, uint32_t now_ms, bool evicted_lately) {
  // Never worth more than the page before it: the tail of a chain goes first.
  slots_[id].reused = evicted_lately && (before == kNoSlot || slots_[before].reused);
  place(id, before, now_ms);
  place_in_namespace(id, before);
}

void Recency::used(uint32_t id, uint32_t before, uint32_t now_ms) {
  unlist(id);
  Slot& slot = slots_[id];
  const bool moves = namespaces_.quotas || !slot.reused;
  if (moves) namespace_of(id).remove(slots_.data(), id);
  slot.reused = true;
  place(id, before, now_ms);
  if (moves) place_in_namespace(id, before);
}

void Recency::adopted(uint32_t id, uint32_t before, uint32_t touched_ms) {
  slots_[id].reused = false;
  const bool follows = before != kNoSlot && slots_[before].listed && !slots_[before].reused;
  const uint32_t anchor = follows ? before : last_used_after(touched_ms);
  if (anchor == kNoSlot)
    place_in_front(id, touched_ms);
  else
    place_behind(id, anchor, touched_ms);
  if (!follows) finger_ = id;
  place_in_namespace(id, slots_[id].recency.hotter);
}

void Recency::duplicated(uint32_t id, uint32_t before, uint32_t now_ms) {
  const uint32_t coldest = pages_.once.coldest();
  const uint32_t coldest_ms = coldest == kNoSlot ? now_ms : slots_[coldest].touched_ms;
  adopted(id, before, coldest_ms + (now_ms - coldest_ms) / kDuplicatesOlder);
}

void Recency::place(uint32_t id, uint32_t before, uint32_t now_ms) {
  if (before != id && can_anchor(before, id))
    place_behind(id, before, now_ms);
  else
    place_in_front(id, now_ms);
}

bool Recency::can_anchor(uint32_t anchor, uint32_t id) const {
  if (anchor == kNoSlot) return false;
  const Slot& slot = slots_[anchor];
  if (slot.state != SlotState::committed || !slot.listed || slot.reused != slots_[id].reused)
    return false;
  uint64_t newest = 0;
  for (const uint32_t hottest : {pages_.once.hottest(), pages_.reused.hottest()})
    if (hottest != kNoSlot) newest = std::max(newest, last_use(hottest));
  return newest - last_use(anchor) <= space_.capacity_bytes() / kAnchorShare;
}

uint32_t Recency::last_used_after(uint32_t touched_ms) const {
  const auto later = [&](uint32_t id) { return slots_[id].touched_ms > touched_ms; };
  uint32_t at = finger_;
  int steps = 0;
  while (at != kNoSlot && !later(at) && ++steps < kAgedStepsMax) at = slots_[at].recency.hotter;
  for (; steps < kAgedStepsMax; ++steps) {
    const uint32_t next = at == kNoSlot ? pages_.once.hottest() : slots_[at].recency.colder;
    if (next == kNoSlot || !later(next)) break;
    at = next;
  }
  return at;
}

void Recency::place_in_front(uint32_t id, uint32_t touched_ms) {
  const Slot& slot = slots_[id];
  enter(id, clock_bytes_ + class_of(id).stride_bytes + bonus(slot), touched_ms);
  pages_.list_of(slot).push_hottest(slots_.data(), id);
  class_of(id).pages.list_of(slot).push_hottest(slots_.data(), id);
}

void Recency::place_behind(uint32_t id, uint32_t anchor, uint32_t touched_ms) {
  enter(id, slots_[anchor].stamp, touched_ms);
  const Slot& slot = slots_[id];
  pages_.list_of(slot).insert_behind(slots_.data(), anchor, id);
  auto& own_class = class_of(id).pages.list_of(slot);
  own_class.insert_behind(slots_.data(), same_class_before(id, anchor), id);
}

void Recency::place_in_namespace(uint32_t id, uint32_t anchor) {
  const uint32_t hotter = slots_[id].recency.hotter;
  const bool behind = hotter != kNoSlot && hotter == anchor &&
                      slots_[hotter].namespace_slot == slots_[id].namespace_slot;
  auto& pages = namespace_of(id).list_of(slots_[id]);
  pages.insert_behind(slots_.data(), behind ? anchor : kNoSlot, id);
}

void Recency::enter(uint32_t id, uint64_t stamp, uint32_t touched_ms) {
  Slot& slot = slots_[id];
  clock_bytes_ += class_of(id).stride_bytes;
  slot.listed = true;
  slot.stamp = stamp;
  slot.touched_ms = touched_ms;
}

uint32_t Recency::same_class_before(uint32_t id, uint32_t anchor) {
  const SizeClass* size_class = &class_of(id);
  for (int steps = 0; steps < kClassStepsMax && anchor != kNoSlot; ++steps) {
    if (&class_of(anchor) == size_class) return anchor;
    anchor = slots_[anchor].recency.hotter;
  }
  return kNoSlot;
}

void Recency::restored(uint32_t id, uint64_t stamp) {
  Slot& slot = slots_[id];
  slot.listed = true;
  slot.reused = false;
  slot.stamp = stamp;
  clock_bytes_ = std::max(clock_bytes_, stamp);
  pages_.once.push_hottest(slots_.data(), id);
  class_of(id).pages.once.push_hottest(slots_.data(), id);
  namespace_of(id).once.push_hottest(slots_.data(), id);
}

void Recency::removed(uint32_t id) {
  unlist(id);
  namespace_of(id).remove(slots_.data(), id);
}

void Recency::unlist(uint32_t id) {
  Slot& slot = slots_[id];
  if (slot.parked) parked_.remove(slots_.data(), id);
  slot.parked = false;
  if (!slot.listed) return;
  slot.listed = false;
  if (finger_ == id) finger_ = slot.recency.hotter;
  pages_.remove(slots_.data(), id);
  class_of(id).pages.remove(slots_.data(), id);
}

void Recency::park(uint32_t id) {
  unlist(id);
  Slot& slot = slots_[id];
  // The last unpin of the others puts them back.
  slot.parked = slot.retained && slot.pins == 0 && !slot.spared;
  if (slot.parked) parked_.push_coldest(slots_.data(), id);
}

template <Links Slot::*links>
uint32_t Recency::coldest_evictable(OrderedPages<links>& pages) {
  const auto passed_over = [this](const Slot& slot) {
    return slot.pins > 0 || slot.spared || slot.retained;
  };
  for (auto* list : {&pages.once, &pages.reused}) {
    while (!list->empty() && passed_over(slots_[list->coldest()])) park(list->coldest());
  }
  return pages.coldest(slots_.data());
}

uint32_t Recency::next() {
  const uint32_t id = coldest_evictable(pages_);
  if (id != kNoSlot) return id;
  while (!parked_.empty()) {
    const uint32_t parked = parked_.hottest();
    if (slots_[parked].pins == 0 && !slots_[parked].spared) return parked;
    unlist(parked);  // pinned or spared since
  }
  return kNoSlot;
}

uint32_t Recency::next_of(SizeClass& size_class) { return coldest_evictable(size_class.pages); }

uint32_t Recency::next_of(NamespacePages& own) {
  uint32_t found = kNoSlot;
  for (auto* list : {&own.pages.once, &own.pages.reused}) {
    const auto stays = [this](const Slot& slot) { return slot.kept || slot.retained; };
    for (int steps = 0; !list->empty() && stays(slots_[list->coldest()]); ++steps) {
      if (steps == kKeptStepsMax) break;
      const uint32_t kept = list->coldest();
      list->remove(slots_.data(), kept);
      list->push_hottest(slots_.data(), kept);
    }
    uint32_t id = list->coldest();
    for (int steps = 0; id != kNoSlot && slots_[id].pins > 0; ++steps)
      id = steps < kPinnedStepsMax ? slots_[id].in_namespace.hotter : kNoSlot;
    if (found == kNoSlot || (id != kNoSlot && slots_[id].stamp < slots_[found].stamp)) found = id;
  }
  return found;
}

void Recency::first(size_t count, std::vector<uint32_t>& ids) const {
  ids.clear();
  uint32_t a = pages_.once.coldest(), b = pages_.reused.coldest();
  while (ids.size() < count && (a != kNoSlot || b != kNoSlot)) {
    const bool from_a = b == kNoSlot || (a != kNoSlot && slots_[a].stamp <= slots_[b].stamp);
    uint32_t& at = from_a ? a : b;
    ids.push_back(at);
    at = slots_[at].recency.hotter;
  }
}

void Recency::unpinned(uint32_t id) {
  Slot& slot = slots_[id];
  if (slot.listed || slot.parked || slot.spared || slot.state != SlotState::committed) return;
  slot.listed = true;
  auto& pages = pages_.list_of(slot);
  // Never hotter than the current coldest page, so that the list stays ordered by stamp.
  if (!pages.empty()) slot.stamp = std::min(slot.stamp, slots_[pages.coldest()].stamp);
  pages.push_coldest(slots_.data(), id);
  class_of(id).pages.list_of(slot).push_coldest(slots_.data(), id);
}

void Recency::taken(uint32_t id) {
  unlist(id);
  if (slots_[id].pins == 0) unpinned(id);
}

void Recency::hinted(uint32_t id, uint32_t before, uint32_t now_ms) {
  removed(id);
  duplicated(id, before, now_ms);
}

void Recency::first_to_go(uint32_t id) {
  removed(id);
  slots_[id].reused = false;  // of equally cold pages, those that were not used again go first
  namespace_of(id).once.push_coldest(slots_.data(), id);
  taken(id);
}

void Recency::unretained(uint32_t id) {
  if (!slots_[id].parked) return;
  unlist(id);
  if (slots_[id].pins == 0) unpinned(id);
}

double Recency::worth(uint32_t id) const {
  if (slots_[id].retained) return 1;
  const uint32_t coldest = pages_.coldest(slots_.data());
  if (coldest == kNoSlot) return 1;
  const uint64_t oldest = slots_[coldest].stamp;
  // If all pages were used again, the hottest stamps are a pool's bytes above the clock.
  const uint64_t newest =
      oldest < clock_bytes_ ? clock_bytes_ : clock_bytes_ + space_.capacity_bytes();
  const uint64_t stamp = std::clamp(slots_[id].stamp, oldest, std::max(oldest, newest));
  return newest <= oldest
             ? 0
             : static_cast<double>(stamp - oldest) / static_cast<double>(newest - oldest);
}

}  // namespace peercached
