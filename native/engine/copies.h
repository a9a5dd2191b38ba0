// Copies of other nodes' records, from their feeds (engine/record_feed.h): what most lookups are
// settled by, without a message.
//
// A copy says where a page is; that a page is nowhere only its owners know. It lags behind its
// holder by milliseconds, so that a page it names may have been evicted meanwhile, as one in an
// owner's answer may. But of a *removed* page it must say nothing once the removal is answered: see
// removed().
//
// A holder whose records do not fit, or who cannot be reached, has no copy here: lookups for its
// pages go to their owners.
//
// Thread safe. For each holder the calls of one follower come one after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "shard/shard.h"
#include "transfer/tcp/follower.h"

namespace peercached {

struct CopiesStats {
  uint64_t records = 0, records_max = 0;
  uint64_t bytes = 0;
  unsigned holders = 0;  // of which there is a copy
  uint64_t begun = 0;    // copies that began anew, since start
  uint64_t no_room = 0;  // and that ended because they did not fit
};

class Copies final : public FeedReader {
 public:
  // `on_untidy`: there is something for sweep() to do.
  Copies(uint64_t records_max, std::function<void()> on_untidy);

  // --- a follower's part
  uint64_t asks() override;
  bool begins(HolderIndex holder) override;
  bool changes(HolderIndex holder, std::span<const RecordRow> rows) override;
  void is_up_to_date(HolderIndex holder, uint64_t asked, TimePoint asked_at) override;
  void is_lost(HolderIndex holder) override;

  void forget(HolderIndex holder);

  // Appends records of these digests, three of each at most; those of one are adjacent.
  void find(std::span<const Digest> digests, std::vector<RecordRow>& out) const;

  // Removals of these are over: every holder has dropped these pages. A copy may be older than that
  // and name them still. So it says nothing of them until its holder has answered a question that
  // we ask after this call.
  void removed(std::span<const Digest> digests);

  size_t sweep(size_t records_max) { return shard_.sweep(records_max); }
  CopiesStats stats() const;

 private:
  // The records of one holder are those of a number in the shard of its own: another copy of the
  // same holder has another, because the records of the first are swept up only later.
  struct Copy {
    HolderIndex holder = kNoHolder;
    bool up_to_date = false;
    TimePoint fresh_until{};
    uint64_t asked = 0;  // removals_ at the last question that was answered
  };

  HolderIndex new_number();
  void drop(HolderIndex holder);
  bool speaks_of(const Copy& copy, const Digest& digest) const;
  void forgive();  // removals that all holders have been asked after

  Shard shard_;
  mutable std::shared_mutex mutex_;
  std::vector<Copy> copies_{1};  // by number; the first is none
  std::vector<HolderIndex> dropped_;
  std::unordered_map<HolderIndex, HolderIndex> numbers_;  // of holders
  uint64_t removals_ = 0;                                 // that are over here
  // By digest, the number of its removal: copies asked for before say nothing of it. Of what was
  // asked before all_removed_ they say nothing at all.
  std::unordered_map<Digest, uint64_t, DigestHash> removed_;
  uint64_t all_removed_ = 0;
  std::atomic<uint64_t> begun_{0}, no_room_{0};
};

}  // namespace peercached
