#include "pool/space.h"

#include <algorithm>
#include <cassert>

#include "common/round_up.h"
#include "pool/page_note.h"
#include "pool/slot_header.h"

namespace peercached {

namespace {

constexpr uint64_t kWasteDivisor = 100;  // rounding may waste one part in this many of a span

// A pool has at most about this many spans, unless single pages are larger. Keeps the map small.
constexpr uint64_t kSpansAboutMax = 65536;
// In a small pool one span is at most this fraction of it, so that a half-empty span costs little.
constexpr uint64_t kSpanShareMax = 64;

uint64_t slots_per_span(uint64_t stride, uint64_t bytes_min, uint64_t bytes_max) {
  uint64_t slots = std::max<uint64_t>(1, bytes_min / stride);
  const auto waste = [&](uint64_t n) { return round_up(n * stride, kUnitBytes) - n * stride; };
  while (waste(slots) * kWasteDivisor > slots * stride && (slots + 1) * stride <= bytes_max)
    ++slots;
  return slots;
}

}  // namespace

Space::Space(SlotTable& slots, uint64_t pool_bytes, uint64_t ready_bytes)
    : slots_(slots),
      capacity_bytes_(pool_bytes),
      ready_bytes_(0),
      span_bytes_min_(pool_bytes / kSpansAboutMax),
      span_bytes_max_(std::max(pool_bytes / kSpanShareMax, kUnitBytes)) {
  grow_to(ready_bytes);
}

Space::Space(SlotTable& slots, uint64_t pool_bytes, uint64_t ready_bytes, std::byte* base,
             SpanWords words)
    : Space(slots, pool_bytes, ready_bytes) {
  base_ = base;
  words_.emplace(words);
}

void Space::grow_to(uint64_t ready_bytes) {
  const uint64_t from = std::exchange(ready_bytes_, ready_bytes);
  join_run(stretches_.emplace(from, Stretch{ready_bytes - from, kFreeRun}).first);
  ++loosened_;
}

uint64_t Space::stride_of(uint32_t payload_bytes) const {
  const uint64_t room = round_up(std::max<uint64_t>(payload_bytes, 1), kPayloadStepBytes);
  return sizeof(SlotHeader) + room + (words_ ? sizeof(PageNote) : 0);
}

SizeClass& Space::class_of_stride(uint64_t stride_bytes) {
  if (const auto at = classes_.find(stride_bytes); at != classes_.end()) return *at->second;
  if (classes_.size() >= classes_max_) forget_empty_classes();
  auto made = std::make_unique<SizeClass>();
  made->stride_bytes = stride_bytes;
  made->slots_per_span = slots_per_span(stride_bytes, span_bytes_min_, span_bytes_max_);
  return *classes_.emplace(stride_bytes, std::move(made)).first->second;
}

void Space::forget_empty_classes() {
  std::erase_if(classes_, [](const auto& entry) { return entry.second->spans == 0; });
  // Doubling bounds the cost: ever new page lengths must not scan all classes each time.
  classes_max_ = std::max(kClassesKept, 2 * classes_.size());
}

uint64_t Space::span_bytes_wanted(const SizeClass& size_class) const {
  return round_up(size_class.slots_per_span * size_class.stride_bytes, kUnitBytes);
}

uint32_t Space::take(SizeClass& size_class) {
  if (size_class.free_slots.empty() && !carve(size_class)) return kNoSlot;
  const uint32_t id = size_class.free_slots.hottest();
  size_class.free_slots.remove(slots_.data(), id);
  taken(slots_[id]);
  return id;
}

void Space::take_restored(uint32_t id) {
  spans_[slots_[id].span].size_class->free_slots.remove(slots_.data(), id);
  taken(slots_[id]);
}

void Space::taken(Slot& slot) {
  slot.state = SlotState::reserved;
  Span& span = spans_[slot.span];
  SizeClass& size_class = *span.size_class;
  ++span.used;
  ++span.immovable;
  ++size_class.immovable;
  ++size_class.used;
  used_bytes_ += size_class.stride_bytes;
  free_slot_bytes_ -= size_class.stride_bytes;
}

void Space::give_back(uint32_t id) {
  Slot& slot = slots_[id];
  Span& span = spans_[slot.span];
  SizeClass& size_class = *span.size_class;
  slot.state = SlotState::free;
  size_class.free_slots.push_hottest(slots_.data(), id);
  --size_class.used;
  used_bytes_ -= size_class.stride_bytes;
  free_slot_bytes_ += size_class.stride_bytes;
  ++loosened_;
  if (--span.used == 0) dissolve(slot.span);
}

void Space::hold_down(const Slot& slot) {
  Span& span = spans_[slot.span];
  ++span.immovable;
  ++span.size_class->immovable;
}

void Space::let_go(const Slot& slot) {
  Span& span = spans_[slot.span];
  assert(span.immovable > 0);
  --span.immovable;
  --span.size_class->immovable;
  ++loosened_;
}

Space::Extent Space::extent_at(uint64_t offset) {
  const auto at = stretches_.find(offset);
  if (at == stretches_.end()) return {};
  const auto& [bytes, span] = at->second;
  return {at->first, bytes, span == kFreeRun ? nullptr : &spans_[span]};
}

Space::Extent Space::extent_before(uint64_t offset) {
  const auto at = stretches_.lower_bound(offset);
  return at == stretches_.begin() ? Extent{} : extent_at(std::prev(at)->first);
}

// Takes the best fit, so that large runs last for large pages. If no run fits a whole span, takes
// the largest: a small span is more useful than a hole.
bool Space::carve(SizeClass& size_class) {
  auto fit = runs_.lower_bound({span_bytes_wanted(size_class), 0});
  if (fit == runs_.end()) {
    if (runs_.empty()) return false;
    fit = std::prev(runs_.end());
    if (fit->first < size_class.stride_bytes) return false;
  }
  const auto run = stretches_.find(fit->second);
  const uint64_t count =
      std::min(size_class.slots_per_span, run->second.bytes / size_class.stride_bytes);
  const uint64_t bytes = round_up(count * size_class.stride_bytes, kUnitBytes);
  write_down(spans_[make_span(size_class, split(run, run->first, bytes), count)]);
  return true;
}

Span& Space::restore(const SpanPlace& place) {
  const auto run = std::prev(stretches_.upper_bound(place.offset));
  const uint64_t bytes = round_up(place.slots * place.stride_bytes, kUnitBytes);
  assert(run->second.span == kFreeRun && place.offset + bytes <= run->first + run->second.bytes);
  const auto part = split(run, place.offset, bytes);
  return spans_[make_span(class_of_stride(place.stride_bytes), part, place.slots)];
}

void Space::write_down(const Span& span) {
  if (!words_) return;
  const uint64_t stride = span.size_class->stride_bytes;
  for (uint64_t i = 0; i < span.slots.size(); ++i)
    invalidate_header(base_ + span.offset + i * stride);
  words_->made({span.offset, stride, span.slots.size()});
}

// Cuts [offset, offset + bytes) out of a free run. The rest on either side stays free runs.
Space::Stretches::iterator Space::split(Stretches::iterator run, uint64_t offset, uint64_t bytes) {
  drop_run(run);
  const uint64_t begin = run->first, end = begin + run->second.bytes;
  auto part = run;
  if (offset > begin) {
    run->second.bytes = offset - begin;
    add_run(run);
    part = stretches_.emplace(offset, Stretch{}).first;
  }
  part->second = {bytes, kFreeRun};
  if (offset + bytes < end)
    add_run(stretches_.emplace(offset + bytes, Stretch{end - offset - bytes, kFreeRun}).first);
  return part;
}

uint32_t Space::make_span(SizeClass& size_class, Stretches::iterator part, uint64_t count) {
  const uint64_t offset = part->first;
  uint32_t number = static_cast<uint32_t>(spans_.size());
  if (spans_unused_.empty()) {
    spans_.emplace_back();
  } else {
    number = spans_unused_.back();
    spans_unused_.pop_back();
  }

  part->second.span = number;
  Span& span = spans_[number];
  span.offset = offset;
  span.bytes = part->second.bytes;
  span.size_class = &size_class;
  span.used = span.immovable = 0;
  span.slots.resize(count);
  // From last to first, so that slots are handed out in address order.
  for (uint64_t i = count; i-- > 0;) {
    const uint32_t id = slots_.take_number();
    Slot& slot = slots_[id];
    slot.state = SlotState::free;
    slot.offset = offset + i * size_class.stride_bytes;
    slot.span = number;
    span.slots[i] = id;
    size_class.free_slots.push_hottest(slots_.data(), id);
  }
  size_class.slots += count;
  ++size_class.spans;
  free_slot_bytes_ += count * size_class.stride_bytes;
  return number;
}

void Space::dissolve(uint32_t number) {
  Span& span = spans_[number];
  SizeClass& size_class = *span.size_class;
  assert(span.immovable == 0);
  if (words_) words_->dissolved(span.offset);
  for (uint32_t id : span.slots) {
    size_class.free_slots.remove(slots_.data(), id);
    slots_.give_number(id);
  }
  size_class.slots -= span.slots.size();
  --size_class.spans;
  free_slot_bytes_ -= span.slots.size() * size_class.stride_bytes;
  const auto part = stretches_.find(span.offset);
  span.slots.clear();
  spans_unused_.push_back(number);

  part->second.span = kFreeRun;
  join_run(part);
}

void Space::join_run(Stretches::iterator part) {
  if (const auto next = std::next(part);
      next != stretches_.end() && next->second.span == kFreeRun) {
    drop_run(next);
    part->second.bytes += next->second.bytes;
    stretches_.erase(next);
  }
  if (part != stretches_.begin()) {
    if (const auto before = std::prev(part); before->second.span == kFreeRun) {
      drop_run(before);
      before->second.bytes += part->second.bytes;
      stretches_.erase(part);
      add_run(before);
      return;
    }
  }
  add_run(part);
}

void Space::add_run(Stretches::iterator part) {
  runs_.emplace(part->second.bytes, part->first);
  free_run_bytes_ += part->second.bytes;
}

void Space::drop_run(Stretches::iterator part) {
  runs_.erase({part->second.bytes, part->first});
  free_run_bytes_ -= part->second.bytes;
}

}  // namespace peercached
