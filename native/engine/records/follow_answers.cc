#include "engine/records/follow_answers.h"

#include <algorithm>
#include <vector>

namespace peercached {
namespace {

constexpr uint32_t kFeedWaitMsMax = 10'000;

using Tell = std::function<bool(const tcp::Followed&)>;

// Tells rows of a scan, in parts. `anew` goes with the first part only.
bool tell_scanned(std::span<const RecordRow> rows, bool& anew, const Feed::Wanted& wanted,
                  const Tell& tell) {
  std::vector<RecordRow> some;
  if (wanted) {
    std::ranges::copy_if(rows, std::back_inserter(some),
                         [&](const RecordRow& row) { return wanted(row.digest); });
    rows = some;
  }
  while (!rows.empty()) {
    const auto part = rows.first(std::min<size_t>(rows.size(), tcp::kRowsPerFollowedMax));
    if (!tell({{.rows = part, .anew = std::exchange(anew, false), .more = true}, {}})) return false;
    rows = rows.subspan(part.size());
  }
  return true;
}

}  // namespace

bool FollowAnswers::operator()(Incarnation follower, const tcp::LifeSign& sign,
                               const FeedQuestion& question, uint32_t wait_ms,
                               const Tell& tell) const {
  signs.hear(follower, sign, Clock::now(), false);
  std::vector<RecordRow> changes;
  const Deadline deadline = Deadline::after_ms(std::min(wait_ms, kFeedWaitMsMax));
  const Feed::Wanted wanted = directory.wanted_by(follower, question.ring);
  std::optional<FeedPart> last = feed.answer(follower, question, deadline, changes, wanted);
  if (!last) return false;
  bool told = true;
  if (last->anew || question.scans != 0) {
    ColdPages::Scan at = cold.begin_scan();
    std::vector<RecordRow> rows;
    for (bool more = true; more && told;) {
      rows.clear();
      more = cold.scan(at, rows);
      told = tell_scanned(rows, last->anew, wanted, tell);
    }
  }
  last->rows = changes;
  return told && tell({*last, signs.own(Clock::now())});
}

}  // namespace peercached
