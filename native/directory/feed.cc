#include "directory/feed.h"

#include <algorithm>
#include <unordered_set>

namespace peercached {
namespace {

// Two clocks may differ by so much in the time of a lease.
constexpr auto kDrift = std::chrono::milliseconds(50);

}  // namespace

void Feed::append(std::span<const RecordRow> rows) {
  if (rows.empty()) return;
  std::lock_guard lock(mutex_);
  if (changes_.empty()) changes_.resize(changes_max_);
  for (const RecordRow& row : rows) changes_[end_++ % changes_max_] = row;
}

void Feed::forget() {
  std::lock_guard lock(mutex_);
  end_ += changes_max_ + 1;
}

void Feed::set_view(uint64_t number, std::span<const Incarnation> members, TimePoint now) {
  std::lock_guard lock(mutex_);
  view_ = number;
  members_.assign(members.begin(), members.end());
  owners_ = members_;
  std::erase_if(followers_, [&](const auto& one) {
    return !may_have_lease(one.second, now) && !is_member(one.first);
  });
}

void Feed::set_owners(std::span<const Incarnation> owners) {
  std::lock_guard lock(mutex_);
  owners_.assign(owners.begin(), owners.end());
}

uint64_t Feed::end() const {
  std::lock_guard lock(mutex_);
  return end_;
}

uint64_t Feed::view() const {
  std::lock_guard lock(mutex_);
  return view_;
}

bool Feed::asked(Incarnation follower, const FeedQuestion& question) {
  std::lock_guard lock(mutex_);
  Follower& known = followers_[follower];
  if (question.number <= known.asked) return false;
  known.asked = question.number;
  known.position = question.position;
  known.ring = question.ring;
  known.scans = question.scans != 0;
  // It cannot hold a lease that it was not given.
  const uint64_t view = question.lease_view;
  known.held = view == known.held || view == known.given ? view : 0;
  known.given = 0;
  return true;
}

bool Feed::has_news(Incarnation follower, const FeedQuestion& question, uint64_t told) const {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  if (known == followers_.end()) return true;
  const uint64_t position = known->second.position;
  return !reaches(position) || position < told || question.lease_view != view_ ||
         question.scans != 0;
}

std::optional<FeedPart> Feed::answer(Incarnation follower, const FeedQuestion& question,
                                     TimePoint now, std::vector<RecordRow>& changes,
                                     const Wanted& wanted) {
  std::lock_guard lock(mutex_);
  // A question of a follower that set_view() has forgotten does not count as asked.
  const auto found = followers_.find(follower);
  if (found == followers_.end() || found->second.asked != question.number) return std::nullopt;
  Follower& known = found->second;
  // Of a scan, only the position before it is known (rule 2). Changes during the scan come with the
  // next answer, and so does a lease (rule 3).
  if (!reaches(known.position)) return FeedPart{.from = end_, .to = end_, .anew = true};
  const uint64_t from = known.position;
  if (question.scans != 0) return FeedPart{.from = from, .to = from};
  const uint64_t to = append_wanted(from, kChangesPerPart, changes, wanted);
  if (to < end_) return FeedPart{.from = from, .to = to};  // the rest, and a lease, come next
  known.given = view_;
  known.until = now + kLease + kDrift;
  return FeedPart{.from = from, .to = to, .lease_view = view_};
}

std::optional<FeedPart> Feed::push(Incarnation follower, size_t rows_max,
                                   std::vector<RecordRow>& changes, const Wanted& wanted) const {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  if (known == followers_.end() || !reaches(known->second.position)) return std::nullopt;
  const uint64_t from = known->second.position;
  const uint64_t to = append_wanted(from, rows_max, changes, wanted);
  return FeedPart{.from = from, .to = to};
}

uint64_t Feed::append_wanted(uint64_t from, size_t rows_max, std::vector<RecordRow>& changes,
                             const Wanted& wanted) const {
  uint64_t at = from;
  for (; at < end_ && changes.size() < rows_max; ++at) {
    const RecordRow& row = changes_[at % changes_max_];
    // It may have records of what it does not own any more.
    if (!wanted || row.flags & kRecordWithdraw || wanted(row.digest)) changes.push_back(row);
  }
  return at;
}

void Feed::stands(Incarnation follower, uint64_t position) {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  if (known == followers_.end() || position > end_) return;
  known->second.position = std::max(known->second.position, position);
}

bool Feed::stands_at(Incarnation follower, uint64_t position) const {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  return known != followers_.end() && known->second.position >= position;
}

bool Feed::may_have_lease(Incarnation follower, TimePoint now) const {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  return known != followers_.end() && may_have_lease(known->second, now);
}

bool Feed::scans(Incarnation follower) const {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  return known != followers_.end() && known->second.scans;
}

uint64_t Feed::ring_of(Incarnation follower) const {
  std::lock_guard lock(mutex_);
  const auto known = followers_.find(follower);
  return known == followers_.end() ? 0 : known->second.ring;
}

bool Feed::all_have_asked() const {
  std::lock_guard lock(mutex_);
  return all_asked();
}

std::vector<Feed::Behind> Feed::behind(uint64_t position, TimePoint now,
                                       bool of_earlier_view) const {
  std::vector<Behind> behind;
  std::lock_guard lock(mutex_);
  for (const auto& [who, follower] : followers_) {
    if (follower.position >= position || !may_have_lease(follower, now)) continue;
    const auto is_earlier = [&](uint64_t view) { return view != 0 && view != view_; };
    if (!of_earlier_view || is_earlier(follower.held) || is_earlier(follower.given))
      behind.push_back({who, follower.until});
  }
  return behind;
}

std::vector<Feed::Standing> Feed::standings(TimePoint now) const {
  std::vector<Standing> all;
  std::lock_guard lock(mutex_);
  for (const auto& [who, follower] : followers_) {
    if (!is_member(who)) continue;
    const bool reached = reaches(follower.position);
    all.push_back(
        {who, reached ? end_ - follower.position : UINT64_MAX, may_have_lease(follower, now)});
  }
  return all;
}

uint64_t Feed::last_of(std::span<const Digest> digests, TimePoint now) const {
  const std::unordered_set<Digest, DigestHash> wanted(digests.begin(), digests.end());
  std::lock_guard lock(mutex_);
  uint64_t lowest = end_;
  for (const auto& [who, follower] : followers_) {
    const bool counts = may_have_lease(follower, now) || is_owner(who);
    if (counts) lowest = std::min(lowest, follower.position);
  }
  if (!all_asked() || !reaches(lowest)) return end_;
  for (uint64_t at = end_; at > lowest; --at) {
    if (wanted.contains(changes_[(at - 1) % changes_max_].digest)) return at;
  }
  return 1;
}

}  // namespace peercached
