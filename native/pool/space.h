// Map of the pool: free runs, spans of size classes, slots of spans.
//
//   |<------------------------------ the pool, in units ------------------------------>|
//   | span: 20 slots of 16 KiB | free run | span: one slot of 4 MiB | span | free run ...|
//
// A span has enough slots of one stride to keep rounding to units below 1 % of it. When its last
// slot becomes free, its bytes join the neighbouring free runs and may serve any class.
//
// Knows nothing of pages: victims.h chooses what to evict. Not thread safe.
//
// In a pool that outlives its process, each slot has room for a note behind its payload, and spans
// are recorded (span_words.h). A new span's headers are invalidated first. Its bytes were workers'
// payloads, and the next process would take a header lookalike among them for a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/slot_table.h"
#include "pool/span_words.h"

namespace peercached {

// Small units keep both waste and spans small. For 128 KiB slots with their headers, a 400 KiB span
// keeps rounding at 1 %. With 64 KiB units, 3 MiB would be needed for 2 %.
inline constexpr uint64_t kUnitBytes = 4096;
inline constexpr uint64_t kPayloadStepBytes = 4096;
inline constexpr uint64_t kStrideBytesMin = sizeof(SlotHeader) + kPayloadStepBytes;

struct SizeClass {
  uint64_t stride_bytes = 0;
  uint64_t slots_per_span = 0;
  uint64_t slots = 0, used = 0, spans = 0, evictions = 0;
  uint64_t immovable = 0;  // sum over its spans
  SlotList<&Slot::in_class> free_slots;
  OrderedPages<&Slot::in_class> pages;  // committed
};

struct Span {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  SizeClass* size_class = nullptr;
  std::vector<uint32_t> slots;
  uint32_t used = 0;
  uint32_t immovable = 0;  // reserved or pinned slots; while not 0 the span cannot be emptied
};

class Space {
 public:
  // Of the pool, the first `ready_bytes` may be used.
  Space(SlotTable& slots, uint64_t pool_bytes, uint64_t ready_bytes);
  // For a pool in a file, mapped at `base`.
  Space(SlotTable& slots, uint64_t pool_bytes, uint64_t ready_bytes, std::byte* base,
        SpanWords words);
  void grow_to(uint64_t ready_bytes);

  uint64_t stride_of(uint32_t payload_bytes) const;
  SizeClass& class_of_stride(uint64_t stride_bytes);

  // Takes a slot from the class's free ones or from a free run; kNoSlot if there is neither. The
  // slot is reserved and holds its span down.
  uint32_t take(SizeClass& size_class);
  void give_back(uint32_t slot);
  // Restores a span of an earlier process, with all slots free for take_restored(). Call before
  // anything is taken; the span must lie in free runs.
  Span& restore(const SpanPlace& place);
  void take_restored(uint32_t slot);

  Span& span_of(const Slot& slot) { return spans_[slot.span]; }
  // At a slot's first pin or reservation, and at the end of its last one.
  void hold_down(const Slot& slot);
  void let_go(const Slot& slot);

  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t ready_bytes() const { return ready_bytes_; }
  uint64_t used_bytes() const { return used_bytes_; }
  // Used, or lost to rounding: everything except free runs and free slots.
  uint64_t occupied_bytes() const { return ready_bytes_ - free_run_bytes_ - free_slot_bytes_; }
  // A part of the map; `span` is nullptr for a free run.
  struct Extent {
    uint64_t offset = 0, bytes = 0;
    Span* span = nullptr;
  };
  Extent extent_at(uint64_t offset);      // the part that begins there
  Extent extent_before(uint64_t offset);  // the part that ends there
  uint64_t span_bytes_wanted(const SizeClass& size_class) const;
  // Increases whenever a part of the pool becomes free or movable.
  uint64_t loosened() const { return loosened_; }

  template <class Visit>
  void for_each_class(Visit visit) const {
    for (const auto& [stride, size_class] : classes_) visit(*size_class);
  }

 private:
  static constexpr uint32_t kFreeRun = UINT32_MAX;
  struct Stretch {
    uint64_t bytes;
    uint32_t span;
  };
  using Stretches = std::map<uint64_t, Stretch>;

  bool carve(SizeClass& size_class);
  Stretches::iterator split(Stretches::iterator run, uint64_t offset, uint64_t bytes);
  uint32_t make_span(SizeClass& size_class, Stretches::iterator part, uint64_t count);
  void write_down(const Span& span);
  void taken(Slot& slot);
  void dissolve(uint32_t span);
  void join_run(Stretches::iterator part);  // merges it with its free neighbours
  void add_run(Stretches::iterator part);
  void drop_run(Stretches::iterator part);
  void forget_empty_classes();

  SlotTable& slots_;
  std::byte* base_ = nullptr;  // of a pool in a file
  std::optional<SpanWords> words_;
  const uint64_t capacity_bytes_;
  uint64_t ready_bytes_;
  const uint64_t span_bytes_min_, span_bytes_max_;
  uint64_t used_bytes_ = 0, free_run_bytes_ = 0, free_slot_bytes_ = 0;
  uint64_t loosened_ = 0;

  Stretches stretches_;                           // all that is ready, by offset
  std::set<std::pair<uint64_t, uint64_t>> runs_;  // the free ones: (bytes, offset)
  std::vector<Span> spans_;
  std::vector<uint32_t> spans_unused_;
  // A class without spans keeps only its eviction count. Beyond this many classes it is forgotten.
  static constexpr size_t kClassesKept = 256;
  size_t classes_max_ = kClassesKept;
  std::unordered_map<uint64_t, std::unique_ptr<SizeClass>> classes_;
};

}  // namespace peercached
