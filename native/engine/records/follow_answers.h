// Answers nodes that follow our records.
#pragma once

#include <memory>

#include "common/types.h"
#include "engine/records/directory.h"
#include "engine/records/record_feed.h"
#include "engine/storage/disk_pages.h"
#include "transfer/tcp/follow_server.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/life_signs.h"

namespace peercached {

class FollowAnswers final : public tcp::FollowSource {
 public:
  struct Parts {
    RecordFeed& feed;
    tcp::LifeSigns& signs;
    const DiskPages& disk;
    const Directory& directory;
  };

  explicit FollowAnswers(const Parts& parts) : parts_(parts) {}

  std::unique_ptr<Answer> ask(Incarnation follower, const tcp::LifeSign& sign,
                              const FeedQuestion& question) override;
  int news_fd() const override { return parts_.feed.news_fd(); }
  void hear_news() override { parts_.feed.hear_news(); }

 private:
  const Parts parts_;
};

}  // namespace peercached
