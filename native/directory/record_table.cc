#include "directory/record_table.h"

#include <algorithm>
#include <unordered_map>

namespace peercached {

RecordTable::RecordTable(uint64_t records_max, std::function<void()> on_untidy,
                         std::function<TimePoint()> clock)
    : shard_(records_max, std::move(on_untidy)), clock_(std::move(clock)) {}

std::shared_ptr<RecordTable::Holder> RecordTable::holder_at(HolderIndex index) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Holder>& holder = holders_[index];
  if (!holder) holder = std::make_shared<Holder>();
  return holder;
}

FeedQuestion RecordTable::ask(HolderIndex index, TimePoint now) {
  const auto holder = holder_at(index);
  std::lock_guard lock(holder->mutex);
  clear_if_due(*holder);
  std::shared_lock table(mutex_);
  return holder->following.ask(++asked_, ring_, choice_, now);
}

RecordTable::Taken RecordTable::take(HolderIndex index, const FeedPart& part) {
  const auto holder = holder_at(index);
  std::lock_guard lock(holder->mutex);
  clear_if_due(*holder);
  const auto known = holder->following.take(part);
  if (!known) return Taken::does_not_fit;
  if (part.anew && !begin(index, *holder)) {
    holder->following.forget();
    return Taken::no_room;
  }
  if (!store(index, *holder, part, *known)) return Taken::no_room;
  if (!part.more) {
    holder->following.answered(part.lease_view);
    if (set_lease(*holder) && on_answering_) on_answering_();
  }
  return Taken::ok;
}

uint64_t RecordTable::push(HolderIndex index, const FeedPart& part) {
  const auto holder = holder_at(index);
  std::lock_guard lock(holder->mutex);
  clear_if_due(*holder);
  if (holder->following.reads_scan()) return holder->following.position();
  if (const auto known = holder->following.take(part)) {
    store(index, *holder, part, *known);
  }
  return holder->following.position();
}

bool RecordTable::store(HolderIndex index, Holder& holder, const FeedPart& part, size_t known) {
  Feed::Wanted wanted;
  {
    std::shared_lock lock(mutex_);
    wanted = wanted_;
  }
  std::span<const RecordRow> rows = part.rows.subspan(known);
  std::vector<RecordRow> some;
  const bool may_repeat = part.from != 0 && !part.is_whole();
  if (wanted || may_repeat) {
    // Of each digest only the newest change: what is known already must not be undone, even for a
    // moment. The withdrawal of an earlier page may come behind the record of a later one.
    std::unordered_map<Digest, size_t, DigestHash> places;
    for (const RecordRow& row : rows) {
      // A record that is not stored does not hide the withdrawal of an earlier one.
      if (wanted && (row.flags & kRecordWithdraw) == 0 && !wanted(row.digest)) continue;
      if (may_repeat) {
        const auto [known_at, is_first] = places.try_emplace(row.digest, some.size());
        if (!is_first) {
          RecordRow& newest = some[known_at->second];
          if (row.generation >= newest.generation) newest = row;
          continue;
        }
      }
      some.push_back(row);
    }
    rows = some;
  }
  const bool full = shard_.apply(holder.number, rows).full != 0;
  if (!full && shard_.live(holder.number)) {
    if (on_stored_) on_stored_(index, rows);
    return true;
  }
  if (!full || !no_room_for_all()) no_room_.fetch_add(1, std::memory_order_relaxed);
  holder.following.forget();
  drop(holder);
  return false;
}

void RecordTable::store_only(Feed::Wanted wanted, uint64_t ring) {
  std::lock_guard lock(mutex_);
  if (ring == ring_) return;
  wanted_ = std::move(wanted);
  ring_ = ring;
  ++choice_;
  for (Number& number : numbers_) number.has_all = false;  // until the scan for this ring
}

void RecordTable::store_all_or(Feed::Wanted owned, uint64_t ring, size_t members) {
  {
    std::lock_guard lock(mutex_);
    owned_ = owned;
    owned_ring_ = ring;
    if (members < too_many_) too_many_ = SIZE_MAX;
    if (too_many_ == SIZE_MAX) {
      owned = nullptr;
      ring = 0;
    }
  }
  store_only(std::move(owned), ring);
}

bool RecordTable::no_room_for_all() {
  std::lock_guard lock(mutex_);
  if (ring_ != 0 || owned_ring_ == 0) return false;
  too_many_ = members_.size();
  wanted_ = owned_;
  ring_ = owned_ring_;
  ++choice_;
  ++clears_;
  for (Number& number : numbers_) number.answers_until = TimePoint::min();
  return true;
}

void RecordTable::clear_if_due(Holder& holder) {
  {
    std::shared_lock lock(mutex_);
    const bool whole = holder.number == kNoHolder || shard_.live(holder.number);
    if (holder.clears == clears_ && whole) return;
    holder.clears = clears_;
  }
  holder.following.forget();
  drop(holder);
}

bool RecordTable::begin(HolderIndex index, Holder& holder) {
  drop(holder);
  std::lock_guard lock(mutex_);
  holder.number = new_number();
  if (holder.number == kNoHolder) return false;
  shard_.add_holder(holder.number);
  numbers_[holder.number] = {.holder = index};
  if (number_of_.size() <= index) number_of_.resize(index + 1u, kNoHolder);
  number_of_[index] = holder.number;
  begun_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

HolderIndex RecordTable::new_number() {
  const auto swept = std::find_if(dropped_.begin(), dropped_.end(),
                                  [&](HolderIndex number) { return shard_.swept(number); });
  if (swept != dropped_.end()) {
    const HolderIndex number = *swept;
    dropped_.erase(swept);
    return number;
  }
  if (numbers_.size() == kNodesMax) return kNoHolder;
  numbers_.emplace_back();
  return static_cast<HolderIndex>(numbers_.size() - 1);
}

void RecordTable::drop(Holder& holder) {
  if (holder.number == kNoHolder) return;
  std::lock_guard lock(mutex_);
  const HolderIndex index = numbers_[holder.number].holder;
  number_of_[index] = kNoHolder;
  numbers_[holder.number] = {};
  shard_.drop_holder(holder.number);
  dropped_.push_back(holder.number);
  holder.number = kNoHolder;
  if (on_void_) on_void_(index);
}

bool RecordTable::set_lease(const Holder& holder) {
  if (holder.number == kNoHolder) return false;
  std::lock_guard lock(mutex_);
  const TimePoint now = clock_();
  const bool answered = answers(holder.number, now);
  Number& number = numbers_[holder.number];
  number.has_all = holder.following.choice() == choice_;
  number.lease_view = holder.following.lease_view();
  number.answers_until =
      number.lease_view == 0 ? TimePoint::min() : holder.following.leased_until();
  return !answered && answers(holder.number, now);
}

void RecordTable::set_view(uint64_t number, std::span<const HolderIndex> members) {
  std::lock_guard lock(mutex_);
  view_ = number;
  members_.assign(members.begin(), members.end());
}

bool RecordTable::all_answer(TimePoint now) const {
  return std::ranges::all_of(members_, [&](HolderIndex index) {
    if (index >= number_of_.size() || number_of_[index] == kNoHolder) return false;
    const Number& number = numbers_[number_of_[index]];
    return number.lease_view == view_ && number.has_all && answers(number_of_[index], now);
  });
}

void RecordTable::is_lost(HolderIndex index) {
  const auto holder = holder_at(index);
  std::lock_guard lock(holder->mutex);
  holder->following.end_lease();
  set_lease(*holder);
}

void RecordTable::forget(HolderIndex index) {
  std::shared_ptr<Holder> holder;
  {
    std::lock_guard lock(mutex_);
    const auto found = holders_.find(index);
    if (found == holders_.end()) return;
    holder = std::move(found->second);
    holders_.erase(found);
  }
  std::lock_guard lock(holder->mutex);
  drop(*holder);
}

uint64_t RecordTable::find(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  // No holder's records can be replaced meanwhile, and leases count at the end.
  std::shared_lock lock(mutex_);
  const size_t first = out.size();
  shard_.lookup(digests, out);
  const TimePoint now = clock_();
  keep_useful(out, first, now);
  return all_answer(now) ? view_ : 0;
}

void RecordTable::find_all(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  std::shared_lock lock(mutex_);
  const size_t first = out.size();
  shard_.lookup_all(digests, out);
  keep_useful(out, first, clock_());
}

void RecordTable::keep_useful(std::vector<RecordRow>& rows, size_t first, TimePoint now) const {
  const auto useless = [&](RecordRow& row) {
    const Number& number = numbers_[row.holder];
    row.holder = number.holder;
    return now >= number.answers_until;
  };
  rows.erase(std::remove_if(rows.begin() + static_cast<ptrdiff_t>(first), rows.end(), useless),
             rows.end());
}

uint64_t RecordTable::final_view() const {
  std::shared_lock lock(mutex_);
  return all_answer(clock_()) ? view_ : 0;
}

std::vector<HolderIndex> RecordTable::holders() const {
  const TimePoint now = clock_();
  std::vector<HolderIndex> holders;
  std::shared_lock lock(mutex_);
  for (size_t number = 0; number < numbers_.size(); ++number) {
    if (answers(static_cast<HolderIndex>(number), now)) holders.push_back(numbers_[number].holder);
  }
  return holders;
}

bool RecordTable::stores_owned() const {
  std::shared_lock lock(mutex_);
  return ring_ != 0;
}

RecordTableStats RecordTable::stats() const {
  const ShardStats shard = shard_.stats();
  return {.records = shard.entries,
          .records_max = shard.capacity_entries,
          .bytes = shard.bytes,
          .holders = static_cast<unsigned>(holders().size()),
          .begun = begun_.load(std::memory_order_relaxed),
          .no_room = no_room_.load(std::memory_order_relaxed),
          .only_owned = stores_owned()};
}

}  // namespace peercached
