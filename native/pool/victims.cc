#include "pool/victims.h"

#include <algorithm>

namespace peercached {

namespace {

// A class evicts its own coldest page while that is worth at most this (0: the coldest of the pool,
// 1: just used). Without slack, equally used classes trade spans all the time, and each trade
// evicts pages that are not the coldest.
constexpr double kOwnClassWorth = 0.25;

// Even the coldest page has a cost: at equal worth, the stretch with fewer bytes goes.
constexpr double kLossOfColdest = 0.05;

// Stretches are grown from the spans of this many of the coldest pages.
constexpr int kSeedsMax = 16;
constexpr int kSeedStepsMax = 128;

}  // namespace

bool VictimFinder::find(SizeClass& size_class, std::vector<uint32_t>& victims) {
  victims.clear();
  const uint32_t own = recency_.next_of(size_class);
  recency_.next();  // so that worth is relative to what can be evicted
  if (own != kNoSlot && recency_.worth(own) <= kOwnClassWorth) {
    victims.push_back(own);
    return true;
  }
  const uint64_t one_slot = (size_class.stride_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  Stretch stretch = coldest_stretch(space_.span_bytes_wanted(size_class));
  if (!stretch.found) stretch = coldest_stretch(one_slot);
  if (!stretch.found && own == kNoSlot) stretch = any_stretch(one_slot);
  if (stretch.found)
    pages_in(stretch, victims);
  else if (own != kNoSlot)
    victims.push_back(own);
  return !victims.empty();
}

double VictimFinder::loss_of(const Span& span) const {
  double loss = 0;
  for (uint32_t id : span.slots)
    if (slots_[id].state == SlotState::committed) loss += kLossOfColdest + recency_.worth(id);
  return loss * static_cast<double>(span.size_class->stride_bytes);
}

VictimFinder::Stretch VictimFinder::coldest_stretch(uint64_t bytes) {
  Stretch best;
  Span* seen[kSeedsMax];
  int seeds = 0;
  recency_.first(kSeedStepsMax, coldest_);
  for (const uint32_t id : coldest_) {
    if (seeds == kSeedsMax) break;
    Span& span = space_.span_of(slots_[id]);
    if (span.immovable > 0 || std::find(seen, seen + seeds, &span) != seen + seeds) continue;
    seen[seeds++] = &span;
    const Stretch stretch = grown_from(span.offset, span.offset + span.bytes, bytes);
    if (stretch.found && (!best.found || stretch.loss < best.loss)) best = stretch;
  }
  return best;
}

// Adds the neighbour that loses less per byte until the stretch is large enough.
VictimFinder::Stretch VictimFinder::grown_from(uint64_t begin, uint64_t end, uint64_t bytes) {
  Stretch stretch{begin, end, 0, false};
  const auto price = [this](const Space::Extent& extent) {
    if (extent.bytes == 0) return -1.0;  // the pool's end
    if (extent.span == nullptr) return 0.0;
    if (extent.span->immovable > 0) return -1.0;
    return loss_of(*extent.span) / static_cast<double>(extent.bytes);
  };
  stretch.loss = loss_of(*space_.extent_at(begin).span);
  Space::Extent left = space_.extent_before(begin), right = space_.extent_at(end);
  double left_price = price(left), right_price = price(right);
  while (stretch.end - stretch.begin < bytes) {
    if (left_price < 0 && right_price < 0) return stretch;
    if (right_price < 0 || (left_price >= 0 && left_price < right_price)) {
      stretch.begin = left.offset;
      stretch.loss += left_price * static_cast<double>(left.bytes);
      left = space_.extent_before(stretch.begin);
      left_price = price(left);
    } else {
      stretch.end = right.offset + right.bytes;
      stretch.loss += right_price * static_cast<double>(right.bytes);
      right = space_.extent_at(stretch.end);
      right_price = price(right);
    }
  }
  stretch.found = true;
  return stretch;
}

// The first stretch that can be emptied at all. Used only if the cold end gave none. Nearly
// everything is pinned then, so any stretch is better than a refusal.
VictimFinder::Stretch VictimFinder::any_stretch(uint64_t bytes) {
  if (bytes >= hopeless_bytes_ && hopeless_at_ == space_.loosened()) return {};
  uint64_t begin = 0;
  for (uint64_t at = 0; at < space_.ready_bytes();) {
    const Space::Extent extent = space_.extent_at(at);
    at += extent.bytes;
    if (extent.span != nullptr && extent.span->immovable > 0) begin = at;
    if (at - begin >= bytes) return {begin, at, 0, true};
  }
  hopeless_bytes_ = bytes;
  hopeless_at_ = space_.loosened();
  return {};
}

void VictimFinder::pages_in(const Stretch& stretch, std::vector<uint32_t>& victims) {
  for (uint64_t at = stretch.begin; at < stretch.end;) {
    const Space::Extent extent = space_.extent_at(at);
    at += extent.bytes;
    if (extent.span == nullptr) continue;
    for (uint32_t id : extent.span->slots)
      if (slots_[id].state == SlotState::committed) victims.push_back(id);
  }
}

}  // namespace peercached
