#include "pool/recency.h"

#include <algorithm>
#include <cassert>

namespace peercached {

namespace {
// A page used longer ago than this says nothing about the page after it being of use now.
constexpr uint32_t kAnchorMaxAgeMs = 10'000;

// An anchor of another class gives no place in this class's list. Pages hotter than it are
// passed there, but no more than this many: the lists may differ a little, the work may not grow.
constexpr int kClassStepsMax = 16;
}  // namespace

bool Recency::can_anchor(uint32_t anchor, uint32_t now_ms) const {
  if (anchor == kNoSlot) return false;
  const Slot& slot = slots_[anchor];
  return slot.state == SlotState::committed && slot.listed &&
         now_ms - slot.touched_ms <= kAnchorMaxAgeMs;
}

uint32_t Recency::parent_of(uint32_t id) const {
  const Slot& slot = slots_[id];
  if (slot.parent == kNoSlot) return kNoSlot;
  const Slot& parent = slots_[slot.parent];
  const bool same_page = parent.state == SlotState::committed && parent.uses == slot.parent_uses;
  return same_page ? slot.parent : kNoSlot;
}

void Recency::touch(uint32_t id, uint32_t anchor, uint32_t now_ms) {
  remove(id);
  Slot& slot = slots_[id];
  SizeClass& size_class = class_of(id);
  slot.listed = true;
  slot.touched_ms = now_ms;
  if (anchor == id || !can_anchor(anchor, now_ms)) {
    clock_bytes_ += size_class.stride_bytes;
    slot.stamp = clock_bytes_;
    pages_.push_hottest(slots_.data(), id);
    size_class.pages.push_hottest(slots_.data(), id);
    return;
  }
  slot.stamp = slots_[anchor].stamp;
  pages_.insert_behind(slots_.data(), anchor, id);
  if (&class_of(anchor) == &size_class) {
    size_class.pages.insert_behind(slots_.data(), anchor, id);
    return;
  }
  uint32_t behind = kNoSlot;
  uint32_t next = size_class.pages.hottest();
  for (int steps = 0; steps < kClassStepsMax && next != kNoSlot; ++steps) {
    if (slots_[next].stamp <= slot.stamp) break;
    behind = next;
    next = slots_[next].in_class.colder;
  }
  size_class.pages.insert_behind(slots_.data(), behind, id);
}

void Recency::restore(uint32_t id, uint64_t stamp) {
  Slot& slot = slots_[id];
  slot.listed = true;
  slot.stamp = stamp;
  clock_bytes_ = std::max(clock_bytes_, stamp);
  pages_.push_hottest(slots_.data(), id);
  class_of(id).pages.push_hottest(slots_.data(), id);
}

void Recency::remove(uint32_t id) {
  Slot& slot = slots_[id];
  if (!slot.listed) return;
  slot.listed = false;
  pages_.remove(slots_.data(), id);
  class_of(id).pages.remove(slots_.data(), id);
}

void Recency::park(uint32_t id) {
  assert(slots_[id].pins > 0);
  remove(id);
}

uint32_t Recency::coldest() {
  while (!pages_.empty() && slots_[pages_.coldest()].pins > 0) park(pages_.coldest());
  return pages_.coldest();
}

uint32_t Recency::coldest_of(SizeClass& size_class) {
  auto& pages = size_class.pages;
  while (!pages.empty() && slots_[pages.coldest()].pins > 0) park(pages.coldest());
  return pages.coldest();
}

void Recency::unpinned(uint32_t id) {
  Slot& slot = slots_[id];
  if (slot.listed || slot.state != SlotState::committed) return;
  slot.listed = true;
  // Not hotter than what is at the cold end by now: the order of stamps holds.
  if (!pages_.empty()) slot.stamp = std::min(slot.stamp, slots_[pages_.coldest()].stamp);
  pages_.push_coldest(slots_.data(), id);
  class_of(id).pages.push_coldest(slots_.data(), id);
}

double Recency::warmth(uint32_t id) const {
  if (pages_.empty()) return 1;
  const uint64_t oldest = slots_[pages_.coldest()].stamp;
  const uint64_t stamp = std::max(slots_[id].stamp, oldest);
  return clock_bytes_ == oldest
             ? 0
             : static_cast<double>(stamp - oldest) / static_cast<double>(clock_bytes_ - oldest);
}

}  // namespace peercached
