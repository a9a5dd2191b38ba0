// For each holder index: whether its records are live, and how many there are.
//
// One word per holder, so that a drop is a single atomic operation and also returns how many
// records died with it:
//
//   bit 63      live
//   bits 40-62  holds: running updates of this holder
//   bits 0-39   records in the table
//
// An index may be reused only when its word is 0. The word includes holds, because an update that
// began before the drop may still be storing records. If the index were reused meanwhile, they
// would count as the next holder's.
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

  // Held during an update of the holder's records. False: the holder is not live, do not update.
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

  // Reserves room for up to `wanted` more live records. Pass the granted number to settle().
  uint64_t reserve(uint64_t wanted);
  // Call in the critical section that changed the records, with the holder on hold.
  void settle(HolderIndex holder, int64_t added, int64_t removed, uint64_t reserved);
  // Counts one removed record of any holder.
  void removed(HolderIndex holder) { settle(holder, 0, 1, 0); }
  // A record of a live holder finds no place any more. It takes all records of that holder with it:
  // a single missing one would say that its page is nowhere.
  void lose(HolderIndex holder) {
    drop(holder);
    removed(holder);
    lost_.fetch_add(1, std::memory_order_relaxed);
  }
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

  uint64_t live_records() const { return positive(live_records_.load()); }
  uint64_t dead_records() const { return positive(dead_records_.load()); }
  uint64_t capacity() const { return static_cast<uint64_t>(capacity_); }
  uint64_t resident_bytes() const;

 private:
  static constexpr uint64_t kLive = uint64_t{1} << 63;
  static constexpr uint64_t kHold = uint64_t{1} << 40;
  static constexpr uint64_t kCountMask = kHold - 1;

  // Counts can briefly be negative: see settle().
  static uint64_t positive(int64_t count) { return count > 0 ? static_cast<uint64_t>(count) : 0; }
  std::atomic<uint64_t>& word(HolderIndex holder) const { return words_[holder]; }

  const int64_t capacity_;
  ReservedMemory memory_;  // pages of never used indices stay untouched
  std::atomic<uint64_t>* words_;
  std::atomic<uint32_t> holders_used_{0};  // all indices ever added are below this
  std::atomic<int64_t> live_records_{0};   // includes reserved room
  std::atomic<int64_t> dead_records_{0};
  std::atomic<uint64_t> lost_{0};
};

}  // namespace peercached
