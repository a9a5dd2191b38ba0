// A holder's log of the changes of its records, and what it knows of each follower: the holder's
// half of docs/directory.md. Comments name the rules there by number.
//
// A change is a row: a page came into the pool, is on the disk only, or is gone. A position counts
// the changes since this process started: position p is before change p. Only the latest changes
// are kept. A follower with an earlier position begins anew, with a scan of the pool.
//
//   append   ──▶   … 41 +k  42 +m  43 -k │ end = 44
//   asked    ◀──   a follower's question: its position, and the view of the lease that it holds
//   answer   ──▶   the changes behind that position, with a lease
//   push     ──▶   the changes behind the position of a follower that a set waits for
//   stands   ◀──   it has taken them
//   behind         followers that do not stand at a position: they must still be told
//
// Has no socket, no thread and no clock: callers pass the time. Thread safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

// A lease lasts so long: at the follower from its question, at the holder from its answer (rule 5).
inline constexpr auto kLease = std::chrono::seconds(5);
inline constexpr size_t kChangesPerPart = 4096;

// A follower's question to a holder.
struct FeedQuestion {
  uint64_t number = 0;      // each question of a process has a higher one
  uint64_t position = 0;    // where the follower stands; 0: it has no records of this holder
  uint64_t lease_view = 0;  // the view of the lease that it holds; 0: none
  uint64_t ring = 0;        // it stores only what it owns in this ring (Ring::print()); 0: all
  uint64_t scans = 0;       // 1: it has another ring than before, and wants to read all rows once
};

// A part of the answer: either rows of a scan, or the changes from one position to another. The
// last part of a scan only tells its position. There may be fewer rows than changes: additions that
// the follower does not own are left out.
struct FeedPart {
  std::span<const RecordRow> rows{};
  uint64_t from = 0, to = 0;  // 0: these are rows of a scan
  bool anew = false;          // a scan begins: its rows replace all earlier records
  bool more = false;          // another part follows
  uint64_t lease_view = 0;    // with the last part: a lease, given in that view; 0: none

  bool is_whole() const { return rows.size() == to - from; }  // no change is left out
};

class Feed {
 public:
  // The digests that a follower stores. Null: all.
  using Wanted = std::function<bool(const Digest&)>;

  explicit Feed(size_t changes_max) : changes_max_(changes_max) {}

  void append(std::span<const RecordRow> rows);
  // Some changes were not appended: all followers begin anew.
  void forget();
  // The holder's view and its members, who all own records unless set_owners() follows. Leases are
  // given in it (rule 4); none are given before the first one.
  void set_view(uint64_t number, std::span<const Incarnation> members, TimePoint now);
  void set_owners(std::span<const Incarnation> owners);
  uint64_t end() const;
  uint64_t view() const;

  // A question has come. False: it is older than another one, and must not be answered.
  bool asked(Incarnation follower, const FeedQuestion& question);
  // Whether there is something to answer, if only the changes before `told` may be told now.
  bool has_news(Incarnation follower, const FeedQuestion& question, uint64_t told) const;
  // Ends the answer. If `anew`, or if the question asks for a scan, the caller has to tell the rows
  // of a scan that begins now, and then this part. Else it appends the changes, at most
  // kChangesPerPart. Nothing: a newer question has come.
  std::optional<FeedPart> answer(Incarnation follower, const FeedQuestion& question, TimePoint now,
                                 std::vector<RecordRow>& changes, const Wanted& wanted = {});

  // The changes that this follower lacks, at most `rows_max`. Nothing: it has none to append them
  // to, or lacks some that are forgotten.
  std::optional<FeedPart> push(Incarnation follower, size_t rows_max,
                               std::vector<RecordRow>& changes, const Wanted& wanted = {}) const;
  // It has said that it stands there.
  void stands(Incarnation follower, uint64_t position);
  bool stands_at(Incarnation follower, uint64_t position) const;
  bool may_have_lease(Incarnation follower, TimePoint now) const;
  // Its newest question asks for a scan: it takes no push until that has ended.
  bool scans(Incarnation follower) const;
  // FeedQuestion::ring of its newest question.
  uint64_t ring_of(Incarnation follower) const;
  // Whether all owners of the view have asked once (rule 10).
  bool all_have_asked() const;

  struct Behind {
    Incarnation follower;
    TimePoint until;  // then its lease ends, and with it the wait (rule 9)
  };
  // Followers that may have a lease and are not known to stand at `position`. `of_earlier_view`:
  // only those with a lease of an earlier view. Their readers may not know the owners (rule 7).
  std::vector<Behind> behind(uint64_t position, TimePoint now, bool of_earlier_view = false) const;
  struct Standing {
    Incarnation follower;
    uint64_t behind;  // changes that it is not known to have; UINT64_MAX: it has no records
    bool has_lease;
  };
  // For people: the members that have asked.
  std::vector<Standing> standings(TimePoint now) const;
  // The position behind the last change of these digests that somebody may not know. 1: all owners,
  // and followers with a lease, know all.
  uint64_t last_of(std::span<const Digest> digests, TimePoint now) const;

 private:
  struct Follower {
    uint64_t asked = 0;     // number of its newest question
    uint64_t position = 0;  // where it stands, as far as we know
    uint64_t held = 0;      // view of the lease that its newest question named; 0: none
    uint64_t given = 0;     // and of the one in the answer to it: it may have either (rule 6)
    uint64_t ring = 0;      // FeedQuestion::ring
    bool scans = false;     // FeedQuestion::scans
    TimePoint until{};      // both are over then
  };

  // Appends what is wanted of the changes from there on. Returns where it ends.
  uint64_t append_wanted(uint64_t from, size_t rows_max, std::vector<RecordRow>& changes,
                         const Wanted& wanted) const;
  bool reaches(uint64_t position) const {
    return position != 0 && position <= end_ && end_ - position <= changes_max_;
  }
  bool is_member(Incarnation who) const {
    return std::find(members_.begin(), members_.end(), who) != members_.end();
  }
  bool is_owner(Incarnation who) const {
    return std::find(owners_.begin(), owners_.end(), who) != owners_.end();
  }
  bool all_asked() const {
    return std::ranges::all_of(owners_, [&](Incarnation one) { return followers_.contains(one); });
  }
  static bool may_have_lease(const Follower& follower, TimePoint now) {
    return (follower.held != 0 || follower.given != 0) && now < follower.until;
  }

  const size_t changes_max_;
  mutable std::mutex mutex_;
  std::vector<RecordRow> changes_;  // change n is at n % changes_max_
  uint64_t end_ = 1;
  uint64_t view_ = 0;
  std::vector<Incarnation> members_, owners_;
  // The members that have asked, and others with a lease.
  std::unordered_map<Incarnation, Follower> followers_;
};

}  // namespace peercached
