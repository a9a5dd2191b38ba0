// Where a follower stands in one holder's log: the follower's half of docs/directory.md. Comments
// name the rules there by number.
//
//                          answer, not `anew`
//                            ┌────────┐
//   nothing ── anew ─▶ scan ─┴▶ at p ─┘     a lease comes with an answer, and is over by time,
//      ▲                 │       │          or with forget() (rule 11)
//      └──── forget ─────┴───────┘
//
// Has no socket and no clock. Not thread safe.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "directory/feed.h"

namespace peercached {

class Following {
 public:
  // The next question. `number`: above those of all earlier questions of this process. `choice`:
  // another one whenever other records are stored than before.
  FeedQuestion ask(uint64_t number, uint64_t ring, uint64_t choice, TimePoint now) {
    asked_at_ = now;
    asked_choice_ = choice;
    // Only records that are there need rows beside them.
    asked_scan_ = choice != choice_ && position_ != 0;
    return {number, position_, leased(now) ? lease_view_ : 0, ring, asked_scan_};
  }

  // A part has come. Returns how many of its rows are known already; the caller stores the others.
  // Nothing: the part does not fit, and must be dropped (rule 1).
  std::optional<size_t> take(const FeedPart& part) {
    if (part.anew) {
      forget();
      scans_ = true;
    }
    if (part.from == 0) return scans_ || asked_scan_ ? std::optional<size_t>(0) : std::nullopt;
    if (scans_) {
      if (part.from != part.to) return std::nullopt;
      scans_ = false;
      choice_ = asked_choice_;
      position_ = part.to;
      return 0;
    }
    if (position_ == 0 || position_ < part.from) return std::nullopt;
    // A push may overtake an answer, which then has nothing new but its lease.
    const size_t known = std::min(position_, part.to) - part.from;
    position_ = std::max(position_, part.to);
    if (part.is_whole()) return known;
    return known == part.to - part.from ? part.rows.size() : 0;
  }

  // The answer to the last question has been taken to its end, and gave a lease in that view; 0: it
  // gave none.
  void answered(uint64_t lease_view) {
    if (std::exchange(asked_scan_, false)) choice_ = asked_choice_;
    if (lease_view == 0) return;  // the earlier one lasts
    lease_view_ = lease_view;
    leased_until_ = asked_at_ + kLease;  // rule 5
  }
  // Rows of a scan come, beside the records that are here. A change that is pushed meanwhile must
  // not be taken: the scan may have passed its page already, and would undo a withdrawal.
  bool reads_scan() const { return asked_scan_; }
  // All records of that choice are here.
  uint64_t choice() const { return choice_; }

  // The records are lost, or the holder cannot be heard.
  void forget() {
    position_ = 0;
    scans_ = asked_scan_ = false;
    end_lease();
  }
  void end_lease() { lease_view_ = 0; }

  uint64_t position() const { return position_; }
  bool leased(TimePoint now) const { return lease_view_ != 0 && now < leased_until_; }
  uint64_t lease_view() const { return lease_view_; }
  TimePoint leased_until() const { return leased_until_; }

 private:
  uint64_t position_ = 0;  // 0: there are no records, or only a part of a scan
  bool scans_ = false;
  bool asked_scan_ = false;
  uint64_t choice_ = 0, asked_choice_ = 0;
  uint64_t lease_view_ = 0;
  TimePoint asked_at_{}, leased_until_{};
};

}  // namespace peercached
