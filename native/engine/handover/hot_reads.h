// Counts the pages that workers here read from other nodes. A page that is read often is worth a
// replica in our pool: then it is read without the network, and its holder has less to do
// (docs/page-placement.md).
//
// The counts are approximate: a page may take the place of another one. Thread safe.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "engine/handover/part_queue.h"

namespace peercached {

class HotReads {
 public:
  // Reads of one page within kWindow that make it hot.
  static constexpr uint32_t kReads = 3;
  static constexpr auto kWindow = std::chrono::minutes(10);
  static constexpr size_t kHotMax = 4096;

  HotReads() : cells_(kCells), hot_(kHotMax) {}

  // Pages of one namespace were read from their holders. `learnt_at`: see Handover.
  void note(const Digest& namespace_id, uint64_t epoch, std::span<const RecordRow> rows,
            TimePoint now, uint64_t learnt_at = 0) {
    std::vector<RecordRow> hot;
    {
      std::lock_guard lock(mutex_);
      for (const RecordRow& row : rows) {
        Cell& cell = cells_[row.digest.lo % kCells];
        if (cell.digest != row.digest || now - cell.since > kWindow) cell = {row.digest, now, 0};
        if (++cell.reads < kReads) continue;
        cell.reads = 0;  // if no replica is made now, it may become hot again
        hot.push_back(row);
      }
    }
    hot_.add(namespace_id, epoch, hot, learnt_at);
  }
  PartQueue& hot() { return hot_; }

 private:
  static constexpr size_t kCells = 65536;
  struct Cell {
    Digest digest;
    TimePoint since{};
    uint32_t reads = 0;
  };
  std::mutex mutex_;
  std::vector<Cell> cells_;
  PartQueue hot_;
};

}  // namespace peercached
