#include "engine/storage/local_pages.h"

#include <algorithm>
#include <iterator>

namespace peercached {

namespace {

// Promoted pages are held this long for the peer, if the bounds of holds allow: it reads them as
// soon as it has our answer.
constexpr uint32_t kPromotedHoldMs = 1'000;

}  // namespace

std::vector<RecordRow> LocalPages::rows(std::span<const Digest> digests) const {
  std::vector<PinnedPage> pins(digests.size());
  pool.pin(digests, nullptr, false, pins);
  std::vector<PinnedPage> here;
  std::copy_if(pins.begin(), pins.end(), std::back_inserter(here),
               [](const PinnedPage& pin) { return static_cast<bool>(pin); });
  std::vector<RecordRow> rows(here.size());
  pool.rows_of(here, rows);
  pool.unpin(here);
  for (RecordRow& row : rows) row.holder = kSelfHolder;
  return rows;
}

std::vector<RecordRow> LocalPages::records(std::span<const Digest> digests) const {
  std::vector<RecordRow> rows = this->rows(digests);
  if (!disk.enabled() || rows.size() == digests.size()) return rows;
  std::vector<uint8_t> in_pool(digests.size());
  pool.contains(digests, false, in_pool);
  for (size_t i = 0; i < digests.size(); ++i) {
    const auto page = in_pool[i] == 0 ? disk.find(digests[i]) : std::nullopt;
    if (page) rows.push_back(record_of(*page, pool.next_generation()));
  }
  return rows;
}

void LocalPages::hold(std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held) {
  holds.hold(digests, Deadline::after_ms(std::min(hold_ms, kHoldMsMax)).at, held);
  janitor.watch_holds();
}

std::string LocalPages::pin(std::span<const Digest> digests, uint32_t pin_ms, uint64_t bytes_max,
                            std::span<PageStatus> statuses) {
  const TimePoint until = Deadline::after_ms(std::min(pin_ms, kPinMsMax)).at;
  std::string why = holds.pin(digests, until, bytes_max, statuses);
  janitor.watch_holds();
  return why;
}

Promotions LocalPages::promote_now(std::span<const Digest> digests, Deadline deadline) {
  const Timed timed(latencies.promote);
  return promoter.promote(digests, Urgency::somebody_waits, deadline);
}

std::vector<RecordRow> LocalPages::promote(std::span<const Digest> digests, Deadline deadline) {
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
  pool.rows_of(here, rows);
  std::vector<uint8_t> held(kept.size());  // a page that is not held may be gone before its READ
  hold(kept, kPromotedHoldMs, held);
  disk.not_here(absent, rows);
  for (const Digest& digest : unread) {
    RecordRow& row = rows.emplace_back();  // neither resident nor withdrawn
    row.digest = digest;
    row.holder = kSelfHolder;
  }
  return rows;
}

void LocalPages::warm(std::span<const Digest> digests) {
  std::vector<uint8_t> present(digests.size());
  pool.contains(digests, true, present, true);
  counters.used_elsewhere.add(static_cast<uint64_t>(std::count(present.begin(), present.end(), 1)));
  promoter.warm(digests);
}

}  // namespace peercached
