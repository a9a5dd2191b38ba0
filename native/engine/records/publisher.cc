#include "engine/records/publisher.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "transfer/tcp/frames.h"

namespace peercached {
namespace {

constexpr auto kLookAgain = std::chrono::milliseconds(20);

}  // namespace

void Publisher::append(std::span<const RecordRow> rows) {
  if (picture_ == nullptr) {
    feed_.append(rows);
  } else {
    std::lock_guard lock(told_mutex_);
    feed_.append(rows);
    picture_->changed(kSelfHolder, rows);
  }
  parts_.directory.arrivals().came(rows);
}

void Publisher::forget() {
  feed_.forget();
  must_scan_ = true;
}

void Publisher::forget_told() {
  std::lock_guard lock(told_mutex_);
  picture_->forget(kSelfHolder);
}

bool Publisher::wait_told(std::span<const Digest> digests, Deadline deadline) {
  const uint64_t position = feed_.feed().last_of(digests, Clock::now());
  const std::shared_ptr<const Ring> ring = parts_.directory.ring();
  std::vector<HolderIndex> owners = owners_of(ring.get(), digests);
  const TimePoint began = Clock::now();
  const TimePoint patience_ends = began + patience_.load();
  const TimePoint until = std::min(deadline.at, patience_ends);
  bool all = true;
  while (true) {
    const uint64_t seen = feed_.moves();
    const TimePoint now = Clock::now();
    std::erase_if(owners, [&](HolderIndex owner) {
      const Incarnation incarnation = parts_.nodes.incarnation(owner);
      if (feed_.feed().stands_at(incarnation, position)) return true;
      const bool answers = feed_.feed().may_have_lease(incarnation, now);
      const bool is_well = parts_.nodes.live(owner) && !parts_.nodes.suspect(owner);
      // Without a lease it finds none of our pages. It may get one in a moment.
      if (is_well && (answers || now < began + kFramePatience)) return false;
      all = false;
      return true;
    });
    // Engine::set_ring() gives us the ring first. Until the feed has the ring's view, it takes
    // leases of the view before for leases of this one.
    const bool is_in_view = !ring || feed_.feed().view() >= ring->view_number();
    const auto others = feed_.feed().behind(position, now, /*of_earlier_view=*/true);
    if (owners.empty() && others.empty() && is_in_view) return all && feed_.feed().all_have_asked();
    if (now >= until) break;
    std::vector<HolderIndex> asked = owners;
    std::erase_if(asked, [&](HolderIndex owner) {
      return !parts_.nodes.readable(owner) || parts_.nodes.slow(owner, now);
    });
    if (!asked.empty()) push(asked, until);
    // Nobody has moved: an owner may not follow us yet, be slow, or be suspect soon.
    if (!feed_.wait_moved(seen, std::min(until, now + kLookAgain))) return false;
  }
  if (until == patience_ends) {
    for (HolderIndex owner : owners) {
      const Incarnation incarnation = parts_.nodes.incarnation(owner);
      if (feed_.feed().scans(incarnation)) continue;
      parts_.watcher.peer_trouble(owner, incarnation, {"it did not take records in time"});
    }
  }
  return false;
}

std::vector<HolderIndex> Publisher::owners_of(const Ring* ring,
                                              std::span<const Digest> digests) const {
  std::vector<HolderIndex> all;
  if (ring == nullptr) return all;
  for (const Digest& digest : digests) {
    HolderIndex owners[kOwnersMax];
    const unsigned count = ring->owners(digest, owners);
    all.insert(all.end(), owners, owners + count);
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  std::erase(all, kSelfHolder);
  return all;
}

// Returns when these owners have answered, here or to another thread, or at `until`.
void Publisher::push(std::span<const HolderIndex> owners, TimePoint until) {
  std::vector<HolderIndex> targets;
  {
    std::unique_lock lock(mutex_);
    wanted_.insert(wanted_.end(), owners.begin(), owners.end());
    const uint64_t ours = rounds_ + 1;
    const bool over = pushed_.wait_until(
        lock, until, [&] { return rounds_done_ == rounds_ || rounds_done_ >= ours; });
    if (!over || rounds_done_ >= ours) return;
    ++rounds_;
    targets = std::exchange(wanted_, {});
  }
  // Also after an exception, or all later sets would wait.
  const std::unique_ptr<Publisher, void (*)(Publisher*)> round(this, [](Publisher* self) {
    std::lock_guard lock(self->mutex_);
    self->rounds_done_ = self->rounds_;
    self->pushed_.notify_all();
  });
  std::ranges::sort(targets);
  targets.erase(std::ranges::unique(targets).begin(), targets.end());
  std::deque<std::vector<RecordRow>> changes;
  std::vector<PushBatch> batches;
  for (HolderIndex owner : targets) {
    const Incarnation incarnation = parts_.nodes.incarnation(owner);
    std::vector<RecordRow>& rows = changes.emplace_back();
    const auto wanted = parts_.directory.wanted_by(incarnation, feed_.feed().ring_of(incarnation));
    const auto part = feed_.feed().push(incarnation, tcp::kRowsPerRequestMax, rows, wanted);
    if (part && !rows.empty()) batches.push_back({owner, incarnation, part->from, part->to, rows});
  }
  const TimePoint late = Clock::now() + kFramePatience;
  parts_.transfer.push(batches, Deadline{std::min(until, late)});
  parts_.counters.publish_frames.add(batches.size());
  for (const PushBatch& batch : batches) {
    if (batch.answered) {
      feed_.stands(batch.incarnation, batch.stands_at);
    } else if (Clock::now() >= late) {
      parts_.nodes.set_slow(batch.peer, Clock::now() + kSlowFor);
    }
  }
}

}  // namespace peercached
