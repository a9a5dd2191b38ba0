// Copies of other nodes' records, from their feeds (engine/record_feed.h). They answer most lookups
// without a message.
//
// A copy says where a page is. Only the page's owners know that it is nowhere. A copy lags behind
// its holder by milliseconds, so a page that it names may have been evicted. An owner's answer has
// the same weakness. But once the removal of a page is answered, no copy may name it: see
// removed().
//
// A holder has no copy here if its records do not fit, or if it cannot be reached. Lookups for its
// pages go to their owners.
//
// Thread safe. Calls for one holder come from one follower, one after the other.
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
  unsigned holders = 0;  // with an up-to-date copy
  uint64_t begun = 0;    // copies that began anew, since start
  uint64_t no_room = 0;  // copies that ended for lack of room
};

class Copies final : public FeedReader {
 public:
  // `on_untidy`: sweep() has work to do.
  Copies(uint64_t records_max, std::function<void()> on_untidy);

  // --- FeedReader, called by the follower
  uint64_t asks() override;
  bool begins(HolderIndex holder) override;
  bool changes(HolderIndex holder, std::span<const RecordRow> rows) override;
  void is_up_to_date(HolderIndex holder, uint64_t asked, TimePoint asked_at) override;
  void is_lost(HolderIndex holder) override;

  void forget(HolderIndex holder);

  // Appends records of these digests, at most three each. Records of one digest are adjacent.
  void find(std::span<const Digest> digests, std::vector<RecordRow>& out) const;
  // The same, with the records of all holders.
  void find_all(std::span<const Digest> digests, std::vector<RecordRow>& out) const;
  // Holders whose copy answers now.
  std::vector<HolderIndex> holders() const;

  // The removals of these digests are over: every holder has dropped the pages. A copy may be older
  // than that and still name them. So it says nothing of them until its holder has answered a
  // question that we ask after this call.
  void removed(std::span<const Digest> digests);

  size_t sweep(size_t records_max) { return shard_.sweep(records_max); }
  CopiesStats stats() const;

 private:
  // Each copy has its own holder number in the shard. A new copy of the same holder gets a new
  // number, because the records of the old copy are swept later.
  struct Copy {
    HolderIndex holder = kNoHolder;
    bool up_to_date = false;
    TimePoint fresh_until{};
    uint64_t asked = 0;  // removals_ when the last answered question was asked
  };

  HolderIndex new_number();
  void drop(HolderIndex holder);
  bool answers(const Copy& copy, TimePoint now) const {
    return copy.up_to_date && now < copy.fresh_until;
  }
  // Gives the rows from `first` on the numbers of their holders, and drops those of no use.
  void keep_useful(std::vector<RecordRow>& rows, size_t first) const;
  bool speaks_of(const Copy& copy, const Digest& digest) const;
  void forgive();  // forgets removals that all holders were asked after

  Shard shard_;
  mutable std::shared_mutex mutex_;
  std::vector<Copy> copies_{1};  // by number; number 0 is unused
  std::vector<HolderIndex> dropped_;
  std::unordered_map<HolderIndex, HolderIndex> numbers_;  // holder -> number
  uint64_t removals_ = 0;                                 // removals that are over
  // By digest, removals_ at its removal. A copy last asked before that says nothing of the digest.
  // A copy last asked before all_removed_ says nothing at all.
  std::unordered_map<Digest, uint64_t, DigestHash> removed_;
  uint64_t all_removed_ = 0;
  std::atomic<uint64_t> begun_{0}, no_room_{0};
};

}  // namespace peercached
