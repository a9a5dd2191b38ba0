#include "engine/records/follow_answers.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace peercached {
namespace {

// A part of a scan ends with so many rows, or after so many steps: the follower may want few of the
// rows, and has to hear from us in time.
constexpr size_t kRowsPerPart = 1024;
constexpr unsigned kStepsPerPart = 16;

class FollowAnswer final : public tcp::FollowSource::Answer {
 public:
  FollowAnswer(const FollowAnswers::Parts& parts, Incarnation follower,
               const FeedQuestion& question)
      : parts_(parts),
        follower_(follower),
        question_(question),
        wanted_(parts.directory.wanted_by(follower, question.ring)) {}

  Next next(bool has_time, tcp::Followed& part) override {
    if (!last_) {
      if (has_time && !parts_.feed.has_news(follower_, question_)) return Next::wait;
      last_ = parts_.feed.answer(follower_, question_, changes_, wanted_);
      if (!last_) return Next::none;
      if (last_->anew || question_.scans != 0) scan_ = parts_.disk.begin_scan();
    }
    if (scan_ || told_ < rows_.size()) {
      if (told_ == rows_.size()) scan_on();
      part.rows = std::span(rows_).subspan(told_);
      part.rows = part.rows.first(std::min<size_t>(part.rows.size(), tcp::kRowsPerFollowedMax));
      told_ += part.rows.size();
      part.anew = std::exchange(last_->anew, false);
      part.more = true;
    } else {
      last_->rows = changes_;
      part = {*last_, parts_.signs.own(Clock::now())};
    }
    return Next::part;
  }

 private:
  void scan_on() {
    rows_.clear();
    told_ = 0;
    for (unsigned step = 0; scan_ && step < kStepsPerPart && rows_.size() < kRowsPerPart; ++step) {
      const auto before = static_cast<ptrdiff_t>(rows_.size());
      if (!parts_.disk.scan(*scan_, rows_)) scan_.reset();
      if (!wanted_) continue;
      rows_.erase(std::remove_if(rows_.begin() + before, rows_.end(),
                                 [&](const RecordRow& row) { return !wanted_(row.digest); }),
                  rows_.end());
    }
  }

  const FollowAnswers::Parts& parts_;
  const Incarnation follower_;
  const FeedQuestion question_;
  const Feed::Wanted wanted_;
  std::optional<FeedPart> last_;  // the last part
  std::vector<RecordRow> changes_;
  std::optional<DiskPages::Scan> scan_;
  std::vector<RecordRow> rows_;  // of the scan
  size_t told_ = 0;              // of rows_
};

}  // namespace

std::unique_ptr<tcp::FollowSource::Answer> FollowAnswers::ask(Incarnation follower,
                                                              const tcp::LifeSign& sign,
                                                              const FeedQuestion& question) {
  parts_.signs.hear(follower, sign, Clock::now(), false);
  if (!parts_.feed.asked(follower, question)) return nullptr;
  return std::make_unique<FollowAnswer>(parts_, follower, question);
}

}  // namespace peercached
