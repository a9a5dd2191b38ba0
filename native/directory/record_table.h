// The records of other nodes, from their feeds (feed.h). They answer most lookups without a
// message.
//
// A record says where a page is. Only at the page's owners, which each set waits for, a missing
// record says that the page is nowhere: find() tells whether this is so. Records lag behind their
// holder by milliseconds, so a page that they name may have been evicted. But no removed page is
// named: the removal waits for us as long as we have a lease, and without one we name no page of
// that holder.
//
// A holder has no records here if they do not fit, or if it cannot be reached.
//
// Thread safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "directory/feed.h"
#include "directory/following.h"
#include "shard/shard.h"

namespace peercached {

struct RecordTableStats {
  uint64_t records = 0, records_max = 0;
  uint64_t bytes = 0;
  unsigned holders = 0;  // their records answer now
  uint64_t begun = 0;    // scans that began, since start
  uint64_t no_room = 0;  // holders with too many records
  bool only_owned = false;
};

class RecordTable {
 public:
  // `on_untidy`: sweep() has work to do. `clock`: the simulator has its own.
  RecordTable(
      uint64_t records_max, std::function<void()> on_untidy,
      std::function<TimePoint()> clock = [] { return Clock::now(); });

  // `on_stored`: changes of a holder's records have been stored. `on_void`: all that it has stored
  // is void. Both come in the order of its log. `on_answering`: the records of a holder did not
  // answer, and do now. Call once, before there are any.
  using OnStored = std::function<void(HolderIndex, std::span<const RecordRow>)>;
  using OnVoid = std::function<void(HolderIndex)>;
  void tell_of_changes(OnStored on_stored, OnVoid on_void, std::function<void()> on_answering) {
    on_stored_ = std::move(on_stored);
    on_void_ = std::move(on_void);
    on_answering_ = std::move(on_answering);
  }

  // --- for the threads that talk to the holders
  FeedQuestion ask(HolderIndex holder, TimePoint now);
  enum class Taken : uint8_t { ok, does_not_fit, no_room };
  // A part of the answer to the last question has come.
  Taken take(HolderIndex holder, const FeedPart& part);
  // The holder has pushed changes. Returns where we stand in its log; 0: we have no records of it.
  uint64_t push(HolderIndex holder, const FeedPart& part);
  // The holder cannot be heard, and may have gone: its records do not answer until it is back.
  void is_lost(HolderIndex holder);

  void forget(HolderIndex holder);
  // From now on only records of these digests are stored, those that we own in that ring
  // (Ring::print()). Null and 0: all.
  void store_only(Feed::Wanted wanted, uint64_t ring);
  // All records are stored, or only these, once there is no room for all. `members`: the others in
  // the view. With fewer than did not fit, all are tried again.
  void store_all_or(Feed::Wanted owned, uint64_t ring, size_t members);
  // The other members of our view: all may have pages.
  void set_view(uint64_t number, std::span<const HolderIndex> members);

  // Appends records of these digests, at most three each. Records of one digest are adjacent.
  // Returns the view in question if these are all records and an owner of the digests asks; else 0.
  uint64_t find(std::span<const Digest> digests, std::vector<RecordRow>& out) const;
  // The same, with the records of all holders.
  void find_all(std::span<const Digest> digests, std::vector<RecordRow>& out) const;
  // As find() returns it.
  uint64_t final_view() const;
  // Only records of what we own are stored.
  bool stores_owned() const;
  // Holders with records that answer now.
  std::vector<HolderIndex> holders() const;

  size_t sweep(size_t records_max) { return shard_.sweep(records_max); }
  RecordTableStats stats() const;
  ShardStats shard_stats() const { return shard_.stats(); }

 private:
  // A holder's records have their own number in the shard. A scan gets a new number, because the
  // earlier records are swept later.
  struct Holder {
    std::mutex mutex;  // orders the parts; before mutex_
    Following following;
    HolderIndex number = kNoHolder;
    uint64_t clears = 0;
  };
  struct Number {
    HolderIndex holder = kNoHolder;
    TimePoint answers_until = TimePoint::min();  // the lease
    uint64_t lease_view = 0;
    bool has_all = true;  // that are to be stored
  };

  std::shared_ptr<Holder> holder_at(HolderIndex index);
  bool begin(HolderIndex index, Holder& holder);
  HolderIndex new_number();
  // Drops its records if all had to go since then, or one was lost.
  void clear_if_due(Holder& holder);
  // Stores only owned records from now on. False: it does so already.
  bool no_room_for_all();
  // False: there is no room.
  bool store(HolderIndex index, Holder& holder, const FeedPart& part, size_t known);
  void drop(Holder& holder);
  // Returns whether its records answer now, and did not before.
  bool set_lease(const Holder& holder);
  // Whether records with this number answer.
  bool answers(HolderIndex number, TimePoint now) const {
    return now < numbers_[number].answers_until && shard_.live(number);
  }
  bool all_answer(TimePoint now) const;
  // Gives the rows from `first` on the indices of their holders, and drops those of no use.
  void keep_useful(std::vector<RecordRow>& rows, size_t first, TimePoint now) const;

  Shard shard_;
  const std::function<TimePoint()> clock_;
  OnStored on_stored_;
  OnVoid on_void_;
  std::function<void()> on_answering_;
  std::atomic<uint64_t> asked_{0};
  mutable std::shared_mutex mutex_;
  std::vector<Number> numbers_{1};  // number 0 is unused
  std::vector<HolderIndex> dropped_;
  std::unordered_map<HolderIndex, std::shared_ptr<Holder>> holders_;
  uint64_t view_ = 0;
  std::vector<HolderIndex> members_;
  std::vector<HolderIndex> number_of_;  // by holder
  Feed::Wanted wanted_;
  uint64_t ring_ = 0, choice_ = 0;  // choice_: how often it has changed
  Feed::Wanted owned_;              // of store_all_or()
  uint64_t owned_ring_ = 0;
  // Members when there was no room for all records; SIZE_MAX: there always was.
  size_t too_many_ = SIZE_MAX;
  uint64_t clears_ = 0;  // how often all records had to go
  std::atomic<uint64_t> begun_{0}, no_room_{0};
};

}  // namespace peercached
