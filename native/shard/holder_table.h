// Who counts: for each holder index whether its records are live, and how many there are.
//
// One word per holder, so that dropping one is a single atomic operation that also tells how
// many records died with it:
//
//   bit 63      live
//   bits 40-62  holds: updates of this holder under way
//   bits 0-39   records in the table
//
// An index is free for another holder only when its word is 0. Holds are in it because an update
// that began while the holder was live may still be storing records after the drop; were the
// index given out meanwhile, they would be taken for its next holder's.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/types.h"
#include "shard/reserved_memory.h"

namespace peercached {

class HolderTable {
 public:
  explicit HolderTable(uint64_t capacity_entries);

  void add(HolderIndex holder);  // throws std::invalid_argument while the index is in use
  void drop(HolderIndex holder);
  bool swept(HolderIndex holder) const { return word(holder).load() == 0; }
  bool live(HolderIndex holder) const {
    return word(holder).load(std::memory_order_acquire) & kLive;
  }

  // Around an update of the holder's records. False: it is not live, leave it alone.
  class Hold {
   public:
    Hold(HolderTable& table, HolderIndex holder) : word_(table.word(holder)) {
      live_ = word_.fetch_add(kHold) & kLive;
    }
    ~Hold() { word_.fetch_sub(kHold); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    explicit operator bool() const { return live_; }

   private:
    std::atomic<uint64_t>& word_;
    bool live_;
  };

  // Room for up to `wanted` more live records; what is granted must be settled.
  uint64_t reserve(uint64_t wanted);
  // Within the critical section that changed them: records of a holder on hold.
  void settle(HolderIndex holder, int64_t added, int64_t removed, uint64_t reserved);
  // One record of any holder is gone.
  void removed(HolderIndex holder) { settle(holder, 0, 1, 0); }

  uint64_t live_records() const { return positive(live_records_.load()); }
  uint64_t dead_records() const { return positive(dead_records_.load()); }
  uint64_t capacity() const { return static_cast<uint64_t>(capacity_); }
  uint64_t resident_bytes() const;

 private:
  static constexpr uint64_t kLive = uint64_t{1} << 63;
  static constexpr uint64_t kHold = uint64_t{1} << 40;
  static constexpr uint64_t kCountMask = kHold - 1;

  // Counts dip below zero for a moment: see settle().
  static uint64_t positive(int64_t count) { return count > 0 ? static_cast<uint64_t>(count) : 0; }
  std::atomic<uint64_t>& word(HolderIndex holder) const { return words_[holder]; }

  const int64_t capacity_;
  ReservedMemory memory_;  // most indices are never used, and their pages never touched
  std::atomic<uint64_t>* words_;
  std::atomic<uint32_t> holders_used_{0};  // indices below this may have been touched
  std::atomic<int64_t> live_records_{0};   // and room reserved
  std::atomic<int64_t> dead_records_{0};
};

}  // namespace peercached
