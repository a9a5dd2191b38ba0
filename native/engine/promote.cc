// A holder's part when a peer wants pages read from its disk.

#include "engine/engine.h"

namespace peercached {

namespace {

// Promoted pages are held this long for the peer, if the bounds of holds allow: it reads them as
// soon as it has our answer.
constexpr uint32_t kPromotedHoldMs = 1'000;

}  // namespace

Promotions Engine::promote_now(std::span<const Digest> digests, Deadline deadline) {
  const Timed timed(latencies_.promote);
  return storage_.promoter().promote(digests, Urgency::somebody_waits, deadline);
}

std::vector<RecordRow> Engine::promote_local(std::span<const Digest> digests, Deadline deadline) {
  const Promotions promotions = promote_now(digests, deadline);
  std::vector<PinnedPage> here;
  std::vector<Digest> kept, absent, unread;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (promotions.statuses[i] == PromoteStatus::in_pool) {
      here.push_back(promotions.pages[i]);
      kept.push_back(digests[i]);
    } else if (promotions.statuses[i] == PromoteStatus::absent) {
      absent.push_back(digests[i]);
    } else if (disk_gave_nothing(promotions.statuses[i])) {
      unread.push_back(digests[i]);
    }
  }
  std::vector<RecordRow> rows(here.size());
  storage_.pool().rows_of(here, rows);
  std::vector<uint8_t> held(kept.size());  // a page that is not held may be gone before its READ
  hold_local(kept, kPromotedHoldMs, held);
  storage_.cold().not_here(absent, rows);
  for (const Digest& digest : unread) {
    RecordRow& row = rows.emplace_back();  // neither resident nor withdrawn
    row.digest = digest;
    row.holder = kSelfHolder;
  }
  return rows;
}

}  // namespace peercached
