#include "engine/record_feed.h"

#include <algorithm>

#include "common/thread_name.h"

namespace peercached {
namespace {

// Followers are told this long after a change, and of all changes until then.
constexpr auto kGather = std::chrono::milliseconds(20);

}  // namespace

RecordFeed::RecordFeed(size_t changes_max)
    : changes_max_(changes_max), bell_([this] {
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

void RecordFeed::forget() {
  std::lock_guard lock(mutex_);
  end_ += changes_max_ + 1;
  told_.notify_all();
}

void RecordFeed::append(std::span<const RecordRow> rows) {
  if (rows.empty()) return;
  std::lock_guard lock(mutex_);
  if (changes_.empty()) changes_.resize(changes_max_);
  for (const RecordRow& row : rows) changes_[end_++ % changes_max_] = row;
  if (ringing_ || !followed_) return;
  ringing_ = true;
  appended_.notify_one();
}

RecordFeed::Told RecordFeed::read(uint64_t& position, Deadline deadline,
                                  std::vector<RecordRow>& changes) {
  std::unique_lock lock(mutex_);
  followed_ = true;
  told_.wait_until(lock, deadline.at, [&] {
    return closed_ || (open_ && (told_end_ > position || forgotten(position)));
  });
  if (closed_ || !open_) return Told::closed;
  if (forgotten(position)) {
    position = end_;
    return Told::forgotten;
  }
  for (; position < end_; ++position) changes.push_back(changes_[position % changes_max_]);
  return Told::news;
}

bool RecordFeed::forgotten(uint64_t position) const {
  return position == 0 || position > end_ || end_ - position > changes_max_;
}

void RecordFeed::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  appended_.notify_one();
  told_.notify_all();
}

void RecordFeed::ring() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    appended_.wait(lock, [&] { return ringing_ || closed_; });
    told_.wait_for(lock, kGather, [&] { return closed_; });
    ringing_ = false;
    told_end_ = end_;
    told_.notify_all();
  }
}

}  // namespace peercached
