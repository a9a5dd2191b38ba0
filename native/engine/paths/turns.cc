#include "engine/paths/turns.h"

#include <algorithm>

#include "engine/paths/peer_promotions.h"

namespace peercached {

namespace {

// For owners that we ask again for a crowded holder's pages.
constexpr auto kAnewWithin = std::chrono::milliseconds(100);

uint64_t bytes_of(std::span<const FoundPage> found) {
  uint64_t bytes = 0;
  for (const FoundPage& one : found) bytes += one.row.length;
  return bytes;
}

}  // namespace

void Turns::sort_in(const FoundPage& found, FoundPages& into) {
  const RecordRow& row = found.row;
  if (row.length != get.pages[found.page].length) {
    // The key may have been set anew since this was learnt.
    get.missed(found, PageStatus::length_mismatch);
  } else if (peers.reads.nodes.readable(row.holder)) {
    // The owners may not know yet that it is on that disk only.
    const auto left = get.gone.find(found.page);
    const bool is_gone = left != get.gone.end() && left->second == row.generation &&
                         get.failed[found.page] == row.holder;
    ByHolder& there = row.flags & kRecordResident && !is_gone ? into.resident : into.on_disk;
    there[row.holder].push_back(found);
  } else {
    get.missed(found, PageStatus::error);
  }
}

void Turns::read(FoundPages& found) {
  const ByHolder on_disk = found.on_disk;
  for (const auto& [holder, pages] : found.resident)
    loads.begin({Source::peer, holder}, bytes_of(pages));
  for (const auto& [holder, pages] : on_disk)
    loads.begin({Source::peer_disk, holder}, bytes_of(pages));
  std::vector<FoundPage> left = turn(found);
  while (!left.empty()) {
    FoundPages anew = look_up_anew(left);
    left = turn(anew);
  }
  for (const auto& [holder, pages] : on_disk) {
    uint64_t bytes = 0;
    for (const FoundPage& one : pages)
      bytes += get.pages[one.page].status == PageStatus::ok ? one.row.length : 0;
    loads.came({Source::peer_disk, holder}, bytes, Clock::now(), true);
  }
  loads.end();
}

std::vector<FoundPage> Turns::turn(FoundPages& found) {
  ByHolder behind = slices.take_behind(found.resident);
  promote_and_read(found);
  std::vector<FoundPage> left;
  for (const HolderIndex holder : slices.crowded) {
    const auto more = behind.find(holder);
    if (more == behind.end()) continue;
    left.insert(left.end(), more->second.begin(), more->second.end());
    behind.erase(more);
  }
  peers.reads.read(get, slices, loads, behind, Source::peer);
  return left;
}

FoundPages Turns::look_up_anew(std::span<const FoundPage> left) {
  std::vector<Digest> wanted;
  std::vector<HolderIndex> crowded_at;
  for (const FoundPage& found : left) {
    wanted.push_back(get.digests[found.page]);
    crowded_at.push_back(found.row.holder);
  }
  std::vector<RecordRow> rows(wanted.size());
  std::vector<PageStatus> why(wanted.size());
  // Others have become holders meanwhile, which the location cache cannot know. If the owners do
  // not answer soon, the records that we have are as good as before.
  const Deadline soon{std::min(get.context.deadline.at, Clock::now() + kAnewWithin)};
  peers.locator.locate(wanted, crowded_at, Trust::nothing, soon, rows, why, get.context.trace);
  FoundPages anew;
  for (size_t k = 0; k < left.size(); ++k) {
    const bool better = rows[k].holder != kNoHolder && (rows[k].flags & kRecordResident) != 0 &&
                        rows[k].length == left[k].row.length;
    sort_in({left[k].page, better ? rows[k] : left[k].row}, anew);
  }
  return anew;
}

void Turns::promote_and_read(FoundPages& found) {
  PeerPromotions promotions(peers.control, peers.running, get, found.on_disk);
  peers.reads.read(get, slices, loads, found.resident, Source::peer);
  while (promotions.any()) {
    peers.reads.read(get, slices, loads, promotions.next(), Source::peer_disk);
  }
}

}  // namespace peercached
