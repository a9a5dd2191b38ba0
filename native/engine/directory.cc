#include "engine/directory.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace peercached {

Directory::Directory(uint64_t shard_entries, std::function<void()> on_untidy, NodeTable& nodes,
                     OperationCounters& counters)
    : nodes_(nodes), counters_(counters), shard_(shard_entries, std::move(on_untidy)) {
  shard_.add_holder(kSelfHolder);
}

std::shared_ptr<const Ring> Directory::ring() const {
  std::lock_guard lock(ring_mutex_);
  return ring_;
}

void Directory::set_ring(std::shared_ptr<const Ring> ring) {
  const auto shares = ring->shares();
  nodes_.close_owners();
  std::lock_guard lock(ring_mutex_);
  ring_ = std::move(ring);
  alone_.store(shares.size() == 1 && shares[0].first == kSelfHolder, std::memory_order_release);
}

void Directory::add_holder(HolderIndex holder) {
  shard_.add_holder(holder);
  fences_.admit(holder);
}

void Directory::drop_holder(HolderIndex holder) {
  fences_.refuse(holder);
  shard_.drop_holder(holder);
}

void Directory::lookup(std::span<const Digest> digests, uint64_t view_number, Located& located) {
  const uint64_t term = finality_.term(view_number);
  std::vector<RecordRow> rows;
  shard_.lookup(digests, rows);
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
  located.final = finality_.lasts(term);
  counters_.lookups_answered.fetch_add(1, std::memory_order_relaxed);
}

bool Directory::store(Incarnation holder, uint64_t fence, std::span<const RecordRow> rows) {
  const HolderIndex index = nodes_.find({&holder, 1})[0];
  const bool taken = fences_.pass(index, fence, [&] {
    if (nodes_.incarnation(index) != holder) return false;
    const ShardApplied applied = shard_.apply(index, rows);
    return applied.full == 0 && applied.bad == 0;
  });
  counters_.publishes_answered.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

}  // namespace peercached
