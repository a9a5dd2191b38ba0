// The records of one piece in arrival order; the index (bucket.h) says where each is. A cell given
// back is reused before a new one is begun, the last one first.
//
// A free cell has length 0; its first word names the next free cell.
//
// Readers load cells without a lock. The bucket that named the cell tells them whether they saw one
// consistent record. Everything else needs the piece's mutex.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shard/bucket.h"
#include "shard/packed_record.h"

namespace peercached {

class Cells {
 public:
  // Memory for this many cells, in whole pages.
  static size_t bytes_for(uint32_t cells);

  // `memory`: zeroed, of bytes_for(cells_max); `cells_max`: most cells ever in use at a time.
  void place(std::byte* memory, uint32_t cells_max) {
    memory_ = memory;
    cells_max_ = cells_max;
  }

  // --- readers
  PackedRecord load(uint32_t cell) const;
  [[gnu::always_inline]] void prefetch(uint32_t cell) const;

  // --- writers
  // For sequential scans: hardware prefetchers stop at the page boundary.
  [[gnu::always_inline]] void prefetch_after(uint32_t cell) const {
    __builtin_prefetch(words(cell + kCellsAhead));
  }
  // All cells ever used lie below.
  uint32_t end() const { return end_.load(std::memory_order_relaxed); }
  bool in_use(uint32_t cell) const {
    return load_relaxed(words(cell)[PackedRecord::kLengthWord]) != 0;
  }
  HolderIndex holder_of(uint32_t cell) const {
    return PackedRecord::holder_in(load_relaxed(words(cell)[PackedRecord::kHolderWord]));
  }
  uint64_t hi_above_low_byte_of(uint32_t cell) const {
    uint32_t* const hi = words(cell) + PackedRecord::kHiWord;
    return PackedRecord::hi_in(load_relaxed(hi[0]), load_relaxed(hi[1]));
  }
  uint32_t lo_low_of(uint32_t cell) const {
    return load_relaxed(words(cell)[PackedRecord::kLoWord]);
  }
  // The cell that take() will return; without the mutex, a guess.
  uint32_t next() const {
    const uint32_t free = free_.load(std::memory_order_relaxed);
    return free != kNone ? free : end();
  }
  // Returns a cell to store a record in.
  uint32_t take();
  void store(uint32_t cell, const PackedRecord& record);
  // Call when no bucket names the cell any more.
  void give_back(uint32_t cell);
  // Call after compaction: all cells in use lie below `end`, without gaps.
  void close_up(uint32_t end);

  // Prefaults memory for this many cells beyond end(), so that take() does not wait for it. A fault
  // costs about 1 us per page, or 10 us if a virtual machine's host must first find the page.
  void make_ready(uint32_t cells);
  // Whether at least this many cells beyond end(), or all that remain, are prefaulted.
  bool ready(uint32_t cells) const { return bytes() >= bytes_with(cells); }

  // Bytes of memory in use or prefaulted.
  size_t bytes() const {
    return std::max(bytes_for(end()), bytes_ready_.load(std::memory_order_relaxed));
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kCellsAhead = 48;

  uint32_t* words(uint32_t cell) const {
    return reinterpret_cast<uint32_t*>(memory_ + size_t{cell} * sizeof(PackedRecord));
  }

  size_t bytes_with(uint32_t cells) const { return bytes_for(std::min(end() + cells, cells_max_)); }

  std::byte* memory_ = nullptr;
  uint32_t cells_max_ = 0;
  // Changed under the mutex; statistics and guesses read them without it.
  std::atomic<uint32_t> end_{0};
  std::atomic<uint32_t> free_{kNone};
  std::atomic<size_t> bytes_ready_{0};
};

inline PackedRecord Cells::load(uint32_t cell) const {
  uint32_t* from = words(cell);
  PackedRecord record;
  unrolled<PackedRecord::kWords>([&](unsigned w) { record.words[w] = load_acquire(from[w]); });
  return record;
}

[[gnu::always_inline]] inline void Cells::prefetch(uint32_t cell) const {
  const uint32_t* record = words(cell);
  __builtin_prefetch(record);
  __builtin_prefetch(record + PackedRecord::kWords - 1);
}

inline void Cells::store(uint32_t cell, const PackedRecord& record) {
  uint32_t* to = words(cell);
  unrolled<PackedRecord::kWords>([&](unsigned w) { store_release(to[w], record.words[w]); });
}

inline uint32_t Cells::take() {
  const uint32_t cell = next();
  if (cell == end())
    end_.store(cell + 1, std::memory_order_relaxed);
  else
    free_.store(load_relaxed(words(cell)[0]), std::memory_order_relaxed);
  return cell;
}

inline void Cells::give_back(uint32_t cell) {
  store_release(words(cell)[PackedRecord::kLengthWord], uint32_t{0});
  store_release(words(cell)[0], free_.load(std::memory_order_relaxed));
  free_.store(cell, std::memory_order_relaxed);
}

}  // namespace peercached
