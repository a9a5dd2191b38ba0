#include "engine/follow_answers.h"

#include <algorithm>
#include <vector>

namespace peercached {
namespace {

constexpr uint32_t kFeedWaitMsMax = 10'000;

using Tell = std::function<bool(const tcp::Followed&)>;

// Tells the rows in parts, each with `more`. `anew` goes with the first part only.
bool tell_rows(std::span<const RecordRow> rows, bool& anew, const Tell& tell) {
  while (!rows.empty()) {
    const auto part = rows.first(std::min<size_t>(rows.size(), tcp::kRowsPerFollowedMax));
    if (!tell({part, 0, anew, true, {}})) return false;
    anew = false;
    rows = rows.subspan(part.size());
  }
  return true;
}

}  // namespace

bool FollowAnswers::operator()(Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                               uint32_t wait_ms, const Tell& tell) const {
  signs.hear(follower, sign, Clock::now(), false);
  const Deadline deadline = Deadline::after_ms(std::min(wait_ms, kFeedWaitMsMax));
  std::vector<RecordRow> changes;
  bool anew = false, told = true;
  switch (feed.read(position, deadline, changes)) {
    case RecordFeed::Told::closed:
      return false;
    case RecordFeed::Told::news:
      told = tell_rows(changes, anew, tell);
      break;
    case RecordFeed::Told::forgotten:
      // Changes during the scan are told once more behind it.
      anew = true;
      cold.scan(
          [&](std::span<const RecordRow> rows) { told = told && tell_rows(rows, anew, tell); });
      break;
  }
  return told && tell({{}, position, anew, false, signs.own(Clock::now())});
}

}  // namespace peercached
