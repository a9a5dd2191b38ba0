#include "shard/further_holders.h"

#include <algorithm>

namespace peercached {

PackedRecord* FurtherHolders::find(const Digest& digest, HolderIndex holder) {
  const auto at = by_key_.find(key_of(digest));
  if (at == by_key_.end()) return nullptr;
  for (PackedRecord& record : at->second)
    if (record.holder() == holder) return &record;
  return nullptr;
}

void FurtherHolders::append(const Digest& digest, const HolderTable& holders,
                            std::vector<RecordRow>& out) const {
  const auto at = by_key_.find(key_of(digest));
  if (at == by_key_.end()) return;
  for (const PackedRecord& record : at->second) {
    if (!holders.live(record.holder())) continue;
    out.push_back(record.row());
    out.back().digest = digest;
  }
}

void FurtherHolders::add(const PackedRecord& record) {
  Records& records = by_key_[key_of(record)];
  // Most digests have one or two: doubling, as vectors do, would waste memory.
  if (records.size() == records.capacity()) records.reserve(records.size() * 5 / 4 + 1);
  records.push_back(record);
  ++size_;
  digests_ = by_key_.size();
}

void FurtherHolders::remove(const PackedRecord& record) {
  const auto at = by_key_.find(key_of(record));
  if (at != by_key_.end()) removed(at, std::erase(at->second, record));
}

bool FurtherHolders::take(const PackedRecord& gone, HolderTable& holders, PackedRecord& taken) {
  const auto at = by_key_.find(key_of(gone));
  if (at == by_key_.end()) return false;
  Records& records = at->second;
  const size_t size_before = records.size();
  bool live = false;
  while (!live && !records.empty()) {
    taken = records.back();
    records.pop_back();
    live = holders.live(taken.holder());
    if (!live) holders.removed(taken.holder());
  }
  removed(at, size_before - records.size());
  return live;
}

void FurtherHolders::lose_all(const PackedRecord& gone, HolderTable& holders) {
  for (PackedRecord record; take(gone, holders, record);) holders.lose(record.holder());
}

void FurtherHolders::removed(Map::iterator at, size_t removed) {
  size_ -= removed;
  if (at->second.empty()) by_key_.erase(at);
  digests_ = by_key_.size();
}

}  // namespace peercached
