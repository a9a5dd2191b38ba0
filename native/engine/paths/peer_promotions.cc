#include "engine/paths/peer_promotions.h"

#include <algorithm>
#include <utility>

#include "engine/control/events.h"

namespace peercached {

namespace {

constexpr uint64_t kPromoteBytes = 8 << 20;
constexpr size_t kPromotePages = 1024;

// Takes the first pages out of `left`, as many as a holder is asked for at a time.
std::vector<FoundPage> take_some(std::vector<FoundPage>& left) {
  size_t count = 0;
  uint64_t bytes = 0;
  while (count < left.size() && count < kPromotePages &&
         (count == 0 || bytes + left[count].row.length <= kPromoteBytes)) {
    bytes += left[count++].row.length;
  }
  const auto end = left.begin() + static_cast<ptrdiff_t>(count);
  std::vector<FoundPage> some(left.begin(), end);
  left.erase(left.begin(), end);
  return some;
}

}  // namespace

void PeerPromotions::ask() {
  for (auto& [holder, left] : disk_) {
    if (left.empty()) continue;
    std::vector<FoundPage> some = take_some(left);
    std::vector<Digest> wanted;
    for (const FoundPage& found : some) wanted.push_back(get_.digests[found.page]);
    const auto question = payload_of(PromoteQuestion{holder}, wanted);
    asked_.emplace_back(new Asked{holder,
                                  std::move(some),
                                  running_.changes(),
                                  {control_, EventKind::promote, question, get_.context.deadline}});
  }
}

ByHolder PeerPromotions::next() {
  ByHolder promoted;
  for (const auto& one : asked_) take_answer(*one, promoted);
  asked_.clear();
  ask();
  return promoted;
}

void PeerPromotions::take_answer(Asked& asked, ByHolder& promoted) {
  TraceStep step(get_.context.trace, "promote", asked.pages.size());
  const auto answer = asked.question.wait();
  if (!answer) {
    step.done(PageStatus::deadline, asked.holder);
    for (const FoundPage& found : asked.pages) get_.missed(found, PageStatus::deadline);
    return;
  }
  std::vector<RecordRow> rows = items_of<RecordRow>(*answer);
  const auto given = std::ranges::count_if(rows, [](const RecordRow& row) {
    return row.flags != 0 && (row.flags & kRecordWithdraw) == 0;
  });
  step.done(rows.empty() ? PageStatus::absent : PageStatus::ok, asked.holder, asked.pages.size(),
            static_cast<size_t>(given));
  std::ranges::sort(rows, {}, &RecordRow::digest);

  std::vector<FoundPage> not_now;
  std::vector<FoundPage>& there = promoted[asked.holder];
  for (const FoundPage& found : asked.pages) {
    const auto row = std::ranges::lower_bound(rows, found.row.digest, {}, &RecordRow::digest);
    if (row == rows.end() || row->digest != found.row.digest) {
      not_now.push_back(found);
    } else if (row->flags == 0) {
      get_.not_read(found.page);
      not_now.push_back(found);
    } else if (row->flags & kRecordWithdraw || row->length != found.row.length) {
      get_.missed(found, PageStatus::stale);
    } else {
      row->holder = asked.holder;
      get_.locations.put(*row, Clock::now(), asked.removals);
      there.push_back({found.page, *row});
    }
  }
  std::vector<FoundPage>& left = disk_[asked.holder];
  if (there.empty()) {
    // The holder had no room and made none, so more questions would be in vain.
    for (const FoundPage& found : not_now) get_.missed(found, PageStatus::stale);
    for (const FoundPage& found : left) get_.missed(found, PageStatus::stale);
    left.clear();
  } else {
    left.insert(left.begin(), not_now.begin(), not_now.end());
  }
}

}  // namespace peercached
