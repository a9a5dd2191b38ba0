#include "engine/records/record_feed.h"

#include <algorithm>
#include <utility>

#include "common/thread_name.h"

namespace peercached {
namespace {

// Followers are told this long after a change, and of all changes until then.
constexpr auto kGather = std::chrono::milliseconds(20);

}  // namespace

RecordFeed::RecordFeed(size_t changes_max, std::function<void()> on_moved)
    : feed_(changes_max), on_moved_(std::move(on_moved)), bell_([this] {
        name_thread("feed bell");
        ring();
      }) {}

RecordFeed::~RecordFeed() {
  close();
  bell_.join();
}

void RecordFeed::open() {
  std::lock_guard lock(mutex_);
  open_ = true;
  told_.notify_all();
}

void RecordFeed::append(std::span<const RecordRow> rows) {
  if (rows.empty()) return;
  feed_.append(rows);
  std::lock_guard lock(mutex_);
  if (ringing_ || !followed_) return;
  ringing_ = true;
  appended_.notify_one();
}

void RecordFeed::forget() {
  feed_.forget();
  std::lock_guard lock(mutex_);
  told_.notify_all();
}

void RecordFeed::set_view(uint64_t number, std::span<const Incarnation> members) {
  feed_.set_view(number, members, Clock::now());
  std::lock_guard lock(mutex_);
  told_.notify_all();
}

std::optional<FeedPart> RecordFeed::answer(Incarnation follower, const FeedQuestion& question,
                                           Deadline deadline, std::vector<RecordRow>& changes,
                                           const Feed::Wanted& wanted) {
  if (!feed_.asked(follower, question)) return std::nullopt;
  std::unique_lock lock(mutex_);
  followed_ = true;
  moved();
  told_.wait_until(lock, deadline.at, [&] {
    return closed_ || (open_ && feed_.has_news(follower, question, told_end_));
  });
  if (closed_ || !open_) return std::nullopt;
  return feed_.answer(follower, question, Clock::now(), changes, wanted);
}

uint64_t RecordFeed::tell_now(std::span<const Digest> digests) {
  const uint64_t position = digests.empty() ? feed_.end() : feed_.last_of(digests, Clock::now());
  std::lock_guard lock(mutex_);
  told_end_ = std::max(told_end_, position);
  told_.notify_all();
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
  appended_.notify_one();
  told_.notify_all();
}

void RecordFeed::ring() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    appended_.wait(lock, [&] { return ringing_ || closed_; });
    told_.wait_for(lock, kGather, [&] { return closed_; });
    ringing_ = false;
    told_end_ = feed_.end();
    told_.notify_all();
  }
}

}  // namespace peercached
