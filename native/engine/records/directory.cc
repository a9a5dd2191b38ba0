#include "engine/records/directory.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

namespace peercached {
namespace {

constexpr auto kFormerFor = std::chrono::seconds(30);

bool owns_in(const std::shared_ptr<const Ring>& ring) {
  return ring && std::ranges::any_of(ring->shares(),
                                     [](const auto& share) { return share.first == kSelfHolder; });
}

}  // namespace

Directory::Directory(uint64_t records_max, std::function<void()> on_untidy, NodeTable& nodes,
                     const Running& running, OperationCounters& counters)
    : nodes_(nodes),
      running_(running),
      counters_(counters),
      records_(records_max, std::move(on_untidy)) {
  records_.tell_of_changes(
      [this](HolderIndex holder, std::span<const RecordRow> rows) {
        arrivals_.came(rows);
        if (picture_ != nullptr) picture_->changed(holder, rows);
      },
      [this](HolderIndex holder) {
        if (picture_ != nullptr) picture_->forget(holder);
      },
      [this] { arrivals_.look_again(); });
  nodes_.tell_of_readable([this] { arrivals_.look_again(); });
}

std::shared_ptr<const Ring> Directory::ring() const {
  std::lock_guard lock(ring_mutex_);
  return ring_;
}

std::shared_ptr<const Ring> Directory::former_ring() const {
  std::lock_guard lock(ring_mutex_);
  return Clock::now() < former_until_ ? former_ring_ : nullptr;
}

void Directory::set_ring(std::shared_ptr<const Ring> ring, bool store_all) {
  std::vector<HolderIndex> others;
  for (const NodeTable::Node& node : nodes_.all()) {
    if (node.index != kSelfHolder) others.push_back(node.index);
  }
  const auto shares = ring->shares();
  std::lock_guard lock(ring_mutex_);
  print_ = ring->print([&](HolderIndex node) { return nodes_.incarnation(node); });
  former_ring_ = std::exchange(ring_, std::move(ring));
  const auto owned = [ring = ring_](const Digest& digest) {
    return ring->owned_by(digest, kSelfHolder);
  };
  store_all ? records_.store_all_or(owned, print_, others.size())
            : records_.store_only(owned, print_);
  // Only now: what is stored from now on counts for this view.
  records_.set_view(ring_->view_number(), others);
  former_until_ = Clock::now() + kFormerFor;
  alone_.store(shares.size() == 1 && shares[0].first == kSelfHolder, std::memory_order_release);
}

Feed::Wanted Directory::wanted_by(Incarnation follower, uint64_t ring_print) const {
  std::lock_guard lock(ring_mutex_);
  const HolderIndex index = nodes_.find({&follower, 1})[0];
  if (ring_print == 0 || ring_print != print_ || index == kNoHolder) return nullptr;
  return [ring = ring_, index](const Digest& digest) { return ring->owned_by(digest, index); };
}

bool Directory::is_owner() const { return owns_in(ring()); }
bool Directory::was_owner() const { return owns_in(former_ring()); }

void Directory::lookup(std::span<const Digest> digests, uint64_t view_number, Located& located) {
  std::vector<RecordRow> rows = own_records_(digests);
  std::unordered_set<Digest, DigestHash> ours;
  for (const RecordRow& row : rows) ours.insert(row.digest);
  const uint64_t final_view = records_.find(digests, rows);
  // Ours twice: a page may move from another node to here meanwhile.
  std::vector<Digest> others;
  std::ranges::copy_if(digests, std::back_inserter(others),
                       [&](const Digest& digest) { return !ours.contains(digest); });
  if (!others.empty()) {
    for (const RecordRow& row : own_records_(others)) rows.push_back(row);
  }
  const auto ring = this->ring();
  const bool knows_all = alone() || (final_view != 0 && final_view == view_number);
  located.final = knows_all && ring && std::ranges::all_of(digests, [&](const Digest& digest) {
                    return ring->owned_by(digest, kSelfHolder);
                  });
  if (running_.any()) {
    std::erase_if(rows, [&](const RecordRow& row) { return running_.has(row.digest); });
  }
  std::vector<HolderIndex> named;  // by place in the answer's table of holders
  for (RecordRow& row : rows) {
    auto at = std::find(named.begin(), named.end(), row.holder);
    if (at == named.end()) {
      if (!nodes_.live(row.holder)) continue;
      at = named.insert(at, row.holder);
      located.holders.push_back(nodes_.incarnation(row.holder));
    }
    row.holder = static_cast<HolderIndex>(at - named.begin());
    located.rows.push_back(row);
  }
  counters_.lookups_answered.add();
}

uint64_t Directory::take(Incarnation holder, const FeedPart& part) {
  counters_.publishes_answered.add();
  const HolderIndex index = nodes_.find({&holder, 1})[0];
  return index == kNoHolder ? 0 : records_.push(index, part);
}

}  // namespace peercached
