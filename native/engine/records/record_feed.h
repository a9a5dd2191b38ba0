// Lets others wait for a Feed (directory/feed.h): followers for news, sets and removals until
// followers know.
//
// Followers hear of a change some milliseconds later, together with the next ones. So the cost
// grows with the followers, not with the sets. A removal has them told at once.
//
// Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/timer_fd.h"
#include "directory/feed.h"

namespace peercached {

class RecordFeed {
 public:
  // `on_moved`: a follower that is behind(), as last asked, stands elsewhere now.
  RecordFeed(size_t changes_max, std::function<void()> on_moved)
      : feed_(changes_max), on_moved_(std::move(on_moved)) {}
  RecordFeed(const RecordFeed&) = delete;
  RecordFeed& operator=(const RecordFeed&) = delete;

  // Followers hear nothing before this: pages of an earlier start may have been removed.
  void open();
  void append(std::span<const RecordRow> rows);
  void forget();
  void set_view(uint64_t number, std::span<const Incarnation> members);
  void set_owners(std::span<const Incarnation> owners) { feed_.set_owners(owners); }

  // A follower's question has come. False: it is outdated.
  bool asked(Incarnation follower, const FeedQuestion& question);
  // Whether to answer it before its time is over. If not, ask again after hear_news().
  bool has_news(Incarnation follower, const FeedQuestion& question) const;
  // As Feed::answer(). Nothing, too: the feed is closed or not open yet.
  std::optional<FeedPart> answer(Incarnation follower, const FeedQuestion& question,
                                 std::vector<RecordRow>& changes, const Feed::Wanted& wanted = {});
  // Readable when there may be news, until hear_news().
  int news_fd() const { return news_.get(); }
  void hear_news();
  // Tells followers at once. A follower that stands at the returned position names no page of these
  // digests that left us before the call; without digests, no page at all.
  uint64_t tell_now(std::span<const Digest> digests);
  std::vector<Feed::Behind> behind(uint64_t position);

  // A follower has taken what we pushed, and stands there.
  void stands(Incarnation follower, uint64_t position);
  // Blocks until a follower has asked, or stands elsewhere. `seen`: of moves() before the caller
  // last looked where they stand. False: nobody has, and the feed is closed.
  uint64_t moves() const { return moves_.load(); }
  bool wait_moved(uint64_t seen, TimePoint until);
  const Feed& feed() const { return feed_; }

  // Ends all waiting calls, and answers nobody any more.
  void close();

 private:
  void wake_in(std::chrono::milliseconds pause);  // requires mutex_
  void moved();                                   // requires mutex_

  Feed feed_;
  const std::function<void()> on_moved_;
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::atomic<uint64_t> moves_{0};
  uint64_t told_end_ = 1;  // the changes before it may be told
  bool followed_ = false;  // somebody has asked
  bool watched_ = false;   // somebody waits for on_moved_
  bool open_ = false, closed_ = false;
  bool gathering_ = false;  // news_ will ring
  TimerFd news_;
};

}  // namespace peercached
