#include "engine/copies.h"

#include <algorithm>
#include <mutex>

#include "engine/nodes.h"

namespace peercached {
namespace {

// Holders answer at least every two seconds (follower.h).
constexpr auto kFresh = std::chrono::seconds(5);
constexpr size_t kRemovedMax = 1 << 16;

}  // namespace

Copies::Copies(uint64_t records_max, std::function<void()> on_untidy)
    : shard_(records_max, std::move(on_untidy)) {}

uint64_t Copies::asks() {
  std::shared_lock lock(mutex_);
  return removals_;
}

bool Copies::begins(HolderIndex holder) {
  std::lock_guard lock(mutex_);
  drop(holder);
  const HolderIndex number = new_number();
  if (number == kNoHolder) return false;
  shard_.add_holder(number);
  copies_[number] = {.holder = holder};
  numbers_[holder] = number;
  begun_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

HolderIndex Copies::new_number() {
  const auto swept = std::find_if(dropped_.begin(), dropped_.end(),
                                  [&](HolderIndex number) { return shard_.swept(number); });
  if (swept != dropped_.end()) {
    const HolderIndex number = *swept;
    dropped_.erase(swept);
    return number;
  }
  if (copies_.size() == kNodesMax) return kNoHolder;
  copies_.emplace_back();
  return static_cast<HolderIndex>(copies_.size() - 1);
}

bool Copies::changes(HolderIndex holder, std::span<const RecordRow> rows) {
  HolderIndex number;
  {
    std::shared_lock lock(mutex_);
    const auto found = numbers_.find(holder);
    if (found == numbers_.end()) return false;
    number = found->second;
  }
  if (shard_.apply(number, rows).full == 0) return true;
  no_room_.fetch_add(1, std::memory_order_relaxed);
  forget(holder);
  return false;
}

void Copies::is_up_to_date(HolderIndex holder, uint64_t asked, TimePoint asked_at) {
  std::lock_guard lock(mutex_);
  const auto found = numbers_.find(holder);
  if (found == numbers_.end()) return;
  copies_[found->second] = {holder, true, asked_at + kFresh, asked};
  forgive();
}

void Copies::is_lost(HolderIndex holder) {
  std::lock_guard lock(mutex_);
  const auto found = numbers_.find(holder);
  if (found != numbers_.end()) copies_[found->second].up_to_date = false;
}

void Copies::forget(HolderIndex holder) {
  std::lock_guard lock(mutex_);
  drop(holder);
  forgive();
}

void Copies::drop(HolderIndex holder) {
  const auto found = numbers_.find(holder);
  if (found == numbers_.end()) return;
  copies_[found->second] = {};
  shard_.drop_holder(found->second);
  dropped_.push_back(found->second);
  numbers_.erase(found);
}

void Copies::find(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  std::shared_lock lock(mutex_);
  if (numbers_.empty()) return;
  const size_t first = out.size();
  shard_.lookup(digests, out);
  keep_useful(out, first);
}

void Copies::find_all(std::span<const Digest> digests, std::vector<RecordRow>& out) const {
  std::shared_lock lock(mutex_);
  if (numbers_.empty()) return;
  const size_t first = out.size();
  shard_.lookup_all(digests, out);
  keep_useful(out, first);
}

void Copies::keep_useful(std::vector<RecordRow>& rows, size_t first) const {
  const TimePoint now = Clock::now();
  const auto useless = [&](RecordRow& row) {
    const Copy& copy = copies_[row.holder];
    row.holder = copy.holder;
    return !answers(copy, now) || !speaks_of(copy, row.digest);
  };
  rows.erase(std::remove_if(rows.begin() + static_cast<ptrdiff_t>(first), rows.end(), useless),
             rows.end());
}

std::vector<HolderIndex> Copies::holders() const {
  const TimePoint now = Clock::now();
  std::vector<HolderIndex> holders;
  std::shared_lock lock(mutex_);
  for (const auto& [holder, number] : numbers_) {
    const Copy& copy = copies_[number];
    if (answers(copy, now) && copy.asked >= all_removed_) holders.push_back(holder);
  }
  return holders;
}

bool Copies::speaks_of(const Copy& copy, const Digest& digest) const {
  if (copy.asked < all_removed_) return false;
  if (removed_.empty()) return true;
  const auto found = removed_.find(digest);
  return found == removed_.end() || copy.asked >= found->second;
}

void Copies::removed(std::span<const Digest> digests) {
  std::lock_guard lock(mutex_);
  ++removals_;
  if (numbers_.empty() || removed_.size() + digests.size() > kRemovedMax) {
    all_removed_ = removals_;
    removed_.clear();
    return;
  }
  for (const Digest& digest : digests) removed_[digest] = removals_;
}

void Copies::forgive() {
  if (removed_.empty()) return;
  uint64_t asked = removals_;
  for (const auto& [holder, number] : numbers_) asked = std::min(asked, copies_[number].asked);
  std::erase_if(removed_, [&](const auto& one) { return one.second <= asked; });
  all_removed_ = std::max(all_removed_, asked);  // for copies that begin later
}

CopiesStats Copies::stats() const {
  const ShardStats shard = shard_.stats();
  CopiesStats stats{.records = shard.entries,
                    .records_max = shard.capacity_entries,
                    .bytes = shard.bytes,
                    .begun = begun_.load(std::memory_order_relaxed),
                    .no_room = no_room_.load(std::memory_order_relaxed)};
  std::shared_lock lock(mutex_);
  stats.holders = static_cast<unsigned>(std::count_if(
      copies_.begin(), copies_.end(), [](const Copy& one) { return one.up_to_date; }));
  return stats;
}

}  // namespace peercached
