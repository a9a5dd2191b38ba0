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

// Pinned pages to skip at the cold end of a namespace with a quota.
constexpr int kPinnedStepsMax = 1024;
}  // namespace

bool Recency::can_anchor(uint32_t anchor) const {
  if (anchor == kNoSlot || pages_.empty()) return false;
  const Slot& slot = slots_[anchor];
  return slot.state == SlotState::committed && slot.listed &&
         slots_[pages_.hottest()].stamp - slot.stamp <= space_.capacity_bytes() / kAnchorShare;
}

void Recency::committed(uint32_t id, uint32_t before, uint32_t now_ms) {
  namespace_of(id).push_hottest(slots_.data(), id);
  used(id, before, now_ms);
}

void Recency::used(uint32_t id, uint32_t before, uint32_t now_ms) {
  unlist(id);
  if (before != id && can_anchor(before))
    place_behind(id, before, now_ms);
  else
    place_in_front(id, now_ms);
  place_in_namespace(id, before);
}

void Recency::adopted(uint32_t id, uint32_t before, uint32_t touched_ms) {
  namespace_of(id).push_hottest(slots_.data(), id);
  const uint32_t anchor = before != kNoSlot ? before : last_used_after(touched_ms);
  if (anchor == kNoSlot)
    place_in_front(id, touched_ms);
  else
    place_behind(id, anchor, touched_ms);
  if (before == kNoSlot) finger_ = id;
  place_in_namespace(id, slots_[id].recency.hotter);
}

uint32_t Recency::last_used_after(uint32_t touched_ms) const {
  const auto later = [&](uint32_t id) { return slots_[id].touched_ms > touched_ms; };
  uint32_t at = finger_;
  int steps = 0;
  while (at != kNoSlot && !later(at) && ++steps < kAgedStepsMax) at = slots_[at].recency.hotter;
  for (; steps < kAgedStepsMax; ++steps) {
    const uint32_t next = at == kNoSlot ? pages_.hottest() : slots_[at].recency.colder;
    if (next == kNoSlot || !later(next)) break;
    at = next;
  }
  return at;
}

void Recency::place_in_front(uint32_t id, uint32_t touched_ms) {
  enter(id, clock_bytes_ + class_of(id).stride_bytes, touched_ms);
  pages_.push_hottest(slots_.data(), id);
  class_of(id).pages.push_hottest(slots_.data(), id);
}

void Recency::place_behind(uint32_t id, uint32_t anchor, uint32_t touched_ms) {
  enter(id, slots_[anchor].stamp, touched_ms);
  pages_.insert_behind(slots_.data(), anchor, id);
  class_of(id).pages.insert_behind(slots_.data(), same_class_before(id, anchor), id);
}

void Recency::place_in_namespace(uint32_t id, uint32_t anchor) {
  if (!namespaces_.quotas) return;
  const uint32_t hotter = slots_[id].recency.hotter;
  const bool behind = hotter != kNoSlot && hotter == anchor &&
                      slots_[hotter].namespace_slot == slots_[id].namespace_slot;
  auto& pages = namespace_of(id);
  pages.remove(slots_.data(), id);
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
  namespace_of(id).push_hottest(slots_.data(), id);
  Slot& slot = slots_[id];
  slot.listed = true;
  slot.stamp = stamp;
  clock_bytes_ = std::max(clock_bytes_, stamp);
  pages_.push_hottest(slots_.data(), id);
  class_of(id).pages.push_hottest(slots_.data(), id);
}

void Recency::removed(uint32_t id) {
  unlist(id);
  namespace_of(id).remove(slots_.data(), id);
}

void Recency::unlist(uint32_t id) {
  Slot& slot = slots_[id];
  if (!slot.listed) return;
  slot.listed = false;
  if (finger_ == id) finger_ = slot.recency.hotter;
  pages_.remove(slots_.data(), id);
  class_of(id).pages.remove(slots_.data(), id);
}

void Recency::park(uint32_t id) {
  assert(slots_[id].pins > 0);
  unlist(id);
}

uint32_t Recency::next() {
  while (!pages_.empty() && slots_[pages_.coldest()].pins > 0) park(pages_.coldest());
  return pages_.coldest();
}

uint32_t Recency::next_of(SizeClass& size_class) {
  auto& pages = size_class.pages;
  while (!pages.empty() && slots_[pages.coldest()].pins > 0) park(pages.coldest());
  return pages.coldest();
}

uint32_t Recency::next_of(NamespacePages& own) {
  uint32_t id = own.pages.coldest();
  for (int steps = 0; id != kNoSlot && slots_[id].pins > 0; ++steps)
    id = steps < kPinnedStepsMax ? slots_[id].in_namespace.hotter : kNoSlot;
  return id;
}

uint32_t Recency::after(uint32_t id) const {
  return id == kNoSlot ? pages_.coldest() : slots_[id].recency.hotter;
}

void Recency::unpinned(uint32_t id) {
  Slot& slot = slots_[id];
  if (slot.listed || slot.state != SlotState::committed) return;
  slot.listed = true;
  // Never hotter than the current coldest page, so that the list stays ordered by stamp.
  if (!pages_.empty()) slot.stamp = std::min(slot.stamp, slots_[pages_.coldest()].stamp);
  pages_.push_coldest(slots_.data(), id);
  class_of(id).pages.push_coldest(slots_.data(), id);
}

double Recency::worth(uint32_t id) const {
  if (pages_.empty()) return 1;
  const uint64_t oldest = slots_[pages_.coldest()].stamp;
  const uint64_t stamp = std::max(slots_[id].stamp, oldest);
  return clock_bytes_ == oldest
             ? 0
             : static_cast<double>(stamp - oldest) / static_cast<double>(clock_bytes_ - oldest);
}

}  // namespace peercached
