#include "pool/span_words.h"

#include <atomic>
#include <optional>

#include "common/copy.h"
#include "pool/page_note.h"
#include "pool/space.h"

namespace peercached {

namespace {

constexpr unsigned kStepBits = 20, kSlotBits = 28;
constexpr uint64_t kStrideFixedBytes = sizeof(SlotHeader) + sizeof(PageNote);

uint64_t check_of(uint64_t unit, uint64_t value) {
  const uint64_t both[] = {unit, value};
  return checksum(both, sizeof both) >> (kStepBits + kSlotBits);
}

uint64_t word_of(uint64_t unit, const SpanPlace& span) {
  const uint64_t steps = (span.stride_bytes - kStrideFixedBytes) / kPayloadStepBytes;
  const uint64_t value = steps | span.slots << kStepBits;
  return value | check_of(unit, value) << (kStepBits + kSlotBits);
}

void store(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}

std::optional<SpanPlace> span_of(uint64_t unit, uint64_t word, uint64_t pool_bytes) {
  const uint64_t value = word & ((uint64_t{1} << (kStepBits + kSlotBits)) - 1);
  if (word >> (kStepBits + kSlotBits) != check_of(unit, value)) return std::nullopt;
  SpanPlace span;
  span.offset = unit * kUnitBytes;
  span.stride_bytes =
      kStrideFixedBytes + (value & ((uint64_t{1} << kStepBits) - 1)) * kPayloadStepBytes;
  span.slots = value >> kStepBits;
  const bool fits = span.slots > 0 && span.stride_bytes > kStrideFixedBytes &&
                    span.slots <= (pool_bytes - span.offset) / span.stride_bytes;
  return fits ? std::optional(span) : std::nullopt;
}

}  // namespace

void SpanWords::made(const SpanPlace& span) {
  const uint64_t unit = span.offset / kUnitBytes;
  store(words_[unit], word_of(unit, span));
}

void SpanWords::dissolved(uint64_t offset) { store(words_[offset / kUnitBytes], 0); }

std::vector<SpanPlace> SpanWords::read(uint64_t& damaged) {
  std::vector<SpanPlace> spans;
  uint64_t end = 0;  // of the last span, in units
  for (uint64_t unit = 0; unit < pool_bytes_ / kUnitBytes; ++unit) {
    const uint64_t word = words_[unit];
    if (word == 0) continue;
    const auto span = unit < end ? std::nullopt : span_of(unit, word, pool_bytes_);
    if (!span) {
      ++damaged;
      store(words_[unit], 0);
      continue;
    }
    end = unit + (span->slots * span->stride_bytes + kUnitBytes - 1) / kUnitBytes;
    spans.push_back(*span);
  }
  return spans;
}

}  // namespace peercached
