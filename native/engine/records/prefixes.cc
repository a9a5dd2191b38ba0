#include "engine/records/prefixes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace peercached {
namespace {

enum : uint8_t { kNotHere, kOnDisk, kInPool };

}  // namespace

ClusterPrefix prefix_of(std::span<const Digest> digests, std::span<const RecordRow> rows) {
  std::vector<std::pair<Digest, uint32_t>> places;
  places.reserve(digests.size());
  for (const Digest& digest : digests) {
    places.emplace_back(digest, static_cast<uint32_t>(places.size()));
  }
  std::sort(places.begin(), places.end());
  std::map<HolderIndex, std::vector<uint8_t>> by_holder;
  std::vector<uint8_t> anywhere(digests.size(), kNotHere);
  for (const RecordRow& row : rows) {
    const uint8_t where = (row.flags & kRecordResident) != 0 ? kInPool : kOnDisk;
    std::vector<uint8_t>& tiers =
        by_holder.try_emplace(row.holder, digests.size(), kNotHere).first->second;
    // A digest may be asked for twice.
    for (auto at = std::lower_bound(places.begin(), places.end(), std::pair{row.digest, 0u});
         at != places.end() && at->first == row.digest; ++at) {
      tiers[at->second] = std::max(tiers[at->second], where);
      anywhere[at->second] = where;
    }
  }
  const auto prefix = [](const std::vector<uint8_t>& tiers) {
    return std::find(tiers.begin(), tiers.end(), kNotHere) - tiers.begin();
  };
  ClusterPrefix found{.present = static_cast<uint32_t>(prefix(anywhere)), .nodes = {}};
  for (const auto& [holder, tiers] : by_holder) {
    const auto pages = prefix(tiers);
    if (pages == 0) continue;
    const auto in_pool = std::count(tiers.begin(), tiers.begin() + pages, kInPool);
    found.nodes.push_back({holder, static_cast<uint32_t>(pages), static_cast<uint32_t>(in_pool)});
  }
  return found;
}

ClusterPrefix Prefixes::find(std::span<const Digest> digests,
                             std::span<const RecordRow> learnt) const {
  std::vector<RecordRow> rows;
  records.find_all(digests, rows);
  rows.insert(rows.end(), learnt.begin(), learnt.end());
  std::erase_if(rows, [&](const RecordRow& row) {
    return row.holder == kSelfHolder || !nodes.usable(row.holder) ||
           (running.any() && running.has(row.digest));
  });
  add_own(digests, rows);
  return prefix_of(digests, rows);
}

void Prefixes::add_own(std::span<const Digest> digests, std::vector<RecordRow>& rows) const {
  if (!serving.on()) return;
  std::vector<uint8_t> in_pool(digests.size()), here;
  pool.contains(digests, false, in_pool);
  here = in_pool;
  disk.find_all(digests, here);
  for (size_t i = 0; i < digests.size(); ++i) {
    if (here[i] == 0) continue;
    RecordRow& row = rows.emplace_back();
    row.digest = digests[i];
    row.holder = kSelfHolder;
    row.flags = in_pool[i] != 0 ? kRecordResident : 0;
  }
}

}  // namespace peercached
