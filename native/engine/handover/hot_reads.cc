#include "engine/handover/hot_reads.h"

namespace peercached {

void HotReads::note(const Digest& namespace_id, uint64_t epoch, std::span<const RecordRow> rows,
                    TimePoint now, uint64_t learnt_at) {
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

}  // namespace peercached
