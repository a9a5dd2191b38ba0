#include "engine/records/record_feed.h"

#include <algorithm>
#include <utility>

#include "common/event_fd.h"

namespace peercached {
namespace {

// Followers are told this long after a change, and of all changes until then.
constexpr auto kGather = std::chrono::milliseconds(20);
constexpr auto kAtOnce = std::chrono::milliseconds(0);

}  // namespace

void RecordFeed::open() {
  std::lock_guard lock(mutex_);
  open_ = true;
  wake_in(kAtOnce);
}

void RecordFeed::append(std::span<const RecordRow> rows) {
  if (rows.empty()) return;
  feed_.append(rows);
  std::lock_guard lock(mutex_);
  if (!gathering_ && followed_) wake_in(kGather);
}

void RecordFeed::forget() {
  feed_.forget();
  std::lock_guard lock(mutex_);
  wake_in(kAtOnce);
}

void RecordFeed::set_view(uint64_t number, std::span<const Incarnation> members) {
  feed_.set_view(number, members, Clock::now());
  std::lock_guard lock(mutex_);
  wake_in(kAtOnce);
}

bool RecordFeed::asked(Incarnation follower, const FeedQuestion& question) {
  if (!feed_.asked(follower, question)) return false;
  std::lock_guard lock(mutex_);
  followed_ = true;
  moved();
  return true;
}

bool RecordFeed::has_news(Incarnation follower, const FeedQuestion& question) const {
  std::lock_guard lock(mutex_);
  return closed_ || (open_ && feed_.has_news(follower, question, told_end_));
}

std::optional<FeedPart> RecordFeed::answer(Incarnation follower, const FeedQuestion& question,
                                           std::vector<RecordRow>& changes,
                                           const Feed::Wanted& wanted) {
  std::lock_guard lock(mutex_);
  if (closed_ || !open_) return std::nullopt;
  return feed_.answer(follower, question, Clock::now(), changes, wanted);
}

void RecordFeed::hear_news() {
  std::lock_guard lock(mutex_);
  hush(news_.get());
  gathering_ = false;
  told_end_ = feed_.end();
}

void RecordFeed::wake_in(std::chrono::milliseconds pause) {
  gathering_ = true;
  news_.ring_in(pause);
}

uint64_t RecordFeed::tell_now(std::span<const Digest> digests) {
  const uint64_t position = digests.empty() ? feed_.end() : feed_.last_of(digests, Clock::now());
  std::lock_guard lock(mutex_);
  wake_in(kAtOnce);
  return position;
}

std::vector<Feed::Behind> RecordFeed::behind(uint64_t position) {
  std::lock_guard lock(mutex_);
  watched_ = true;
  return feed_.behind(position, Clock::now());
}

void RecordFeed::stands(Incarnation follower, uint64_t position) {
  feed_.stands(follower, position);
  std::lock_guard lock(mutex_);
  moved();
}

void RecordFeed::moved() {
  ++moves_;
  moved_.notify_all();
  if (std::exchange(watched_, false)) on_moved_();
}

bool RecordFeed::wait_moved(uint64_t seen, TimePoint until) {
  std::unique_lock lock(mutex_);
  moved_.wait_until(lock, until, [&] { return closed_ || moves_ != seen; });
  return !closed_ || moves_ != seen;
}

void RecordFeed::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  moved_.notify_all();
  wake_in(kAtOnce);
}

}  // namespace peercached
