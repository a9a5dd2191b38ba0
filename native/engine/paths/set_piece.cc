#include "engine/paths/set_piece.h"

#include <unordered_map>
#include <utility>

#include "common/exiting.h"
#include "common/gated_copy.h"
#include "engine/paths/device_pages.h"

namespace peercached {
namespace {

// Of the pages that this node has already, one in so many is compared. It is odd, because engines
// often have an even number of pages for the same tokens, such as one of K and one of V.
constexpr uint64_t kHeldPerCompared = 17;

}  // namespace

struct SetPieces::Piece {
  std::span<const size_t> chosen;
  HeldSlots held;
  struct Slot {
    size_t page;
    PinnedPage slot;
  };
  std::vector<Slot> reserved{}, compared{};
  std::vector<PinnedPage> committing{}, aborting{}, pinned{};
  std::vector<Digest> committing_digests{};
};

void SetPieces::store(SetPages& set, std::span<const size_t> chosen, const Digest* parent) const {
  Piece piece{chosen, HeldSlots(pool)};
  reserve(set, piece, parent);
  fill(set, piece);
  commit(set, piece);
  compare_held(set, piece);
}

void SetPieces::reserve(SetPages& set, Piece& piece, const Digest* parent) const {
  std::vector<PageRequest> requests;
  for (const size_t i : piece.chosen) requests.push_back({set.digests[i], set.pages[i].length});
  std::vector<Reservation> reservations(requests.size());
  piece.held = HeldSlots(pool, requests, parent,
                         {set.ns.pool_slot, set.context.ns->id(), set.ns.epoch}, reservations);

  for (size_t k = 0; k < reservations.size(); ++k) {
    const size_t i = piece.chosen[k];
    switch (reservations[k].outcome) {
      case ReserveOutcome::reserved:
        piece.reserved.push_back({i, reservations[k].page});
        break;
      case ReserveOutcome::present:
        set.pages[i].status = PageStatus::ok;
        piece.pinned.push_back(reservations[k].page);
        if (counters.set_held.fetch_add(1) % kHeldPerCompared == 0) {
          piece.compared.push_back({i, reservations[k].page});
        }
        break;
      case ReserveOutcome::newer:  // not for a set
      case ReserveOutcome::busy:
        set.busy.push_back(i);
        break;
      case ReserveOutcome::no_space:
        set.pages[i].status = PageStatus::no_space;
        break;
      case ReserveOutcome::too_large:
        set.pages[i].status = PageStatus::too_large;
        break;
    }
  }
}

void SetPieces::compare_held(const SetPages& set, const Piece& piece) const {
  for (const auto& [i, held] : piece.compared) {
    const PageRef& page = set.pages[i];
    if (page.layout != nullptr) continue;  // its bytes would have to come here first
    const GatedCopy copy = copy_gated(nullptr, page.memory, page.length, page.memory,
                                      *set.context.gate, set.context.deadline);
    if (copy.status != PageStatus::ok || set.context.gate->fenced()) continue;
    const bool differs = copy.checksum != held.checksum;
    nodes.same_keys(kSelfHolder).add(differs);
    set.context.ns->same_keys().add(differs);
  }
}

void SetPieces::fill(SetPages& set, Piece& piece) const {
  uint64_t bytes = 0;
  for (const auto& [i, slot] : piece.reserved) bytes += set.pages[i].length;
  if (set.pages[piece.chosen[0]].layout == nullptr)
    fill_from_region(set, piece, bytes);
  else
    fill_from_device(set, piece, bytes);

  for (const auto& [i, slot] : piece.reserved) {
    if (set.pages[i].status == PageStatus::ok) {
      piece.committing.push_back(slot);
      piece.committing_digests.push_back(set.digests[i]);
      counters.bytes_set.add(set.pages[i].length);
    } else {
      piece.aborting.push_back(slot);
    }
  }
}

void SetPieces::fill_from_region(SetPages& set, Piece& piece, uint64_t bytes) const {
  crew.run(CopyFor::set, piece.reserved.size(), bytes, [&](size_t k) {
    auto& [i, slot] = piece.reserved[k];
    PageRef& page = set.pages[i];
    const GatedCopy copy = copy_gated(slot.payload(), page.memory, page.length, page.memory,
                                      *set.context.gate, set.context.deadline);
    // A worker that gave up on us fills its pages anew. A copy made then may be torn, and its
    // checksum would still be right.
    const bool torn = copy.status == PageStatus::ok && set.context.gate->fenced();
    page.status = torn ? PageStatus::deadline : copy.status;
    slot.checksum = copy.checksum;
  });
}

void SetPieces::fill_from_device(SetPages& set, Piece& piece, uint64_t bytes) const {
  std::vector<DevicePage> pages;
  for (const auto& [i, slot] : piece.reserved) pages.push_back({&set.pages[i], slot.payload()});
  copy_device_pages(*devices, device::Direction::to_host, pages, *set.context.gate,
                    set.context.deadline);
  // Torn if the worker has given up and goes on, or if it ended and its memory went to another.
  const bool torn = set.context.gate->fenced() || is_exiting(set.context.pid);
  crew.run(CopyFor::set, piece.reserved.size(), bytes, [&](size_t k) {
    auto& [i, slot] = piece.reserved[k];
    PageRef& page = set.pages[i];
    if (page.status != PageStatus::ok) return;
    if (torn)
      page.status = PageStatus::deadline;
    else
      slot.checksum = checksum(slot.payload(), page.length);
  });
}

std::vector<uint8_t> SetPieces::present_elsewhere(const SetPages& set, const Piece& piece) const {
  if (piece.committing.empty()) return {};
  std::vector<RecordRow> rows;
  records.find(piece.committing_digests, rows);
  if (rows.empty()) return {};
  std::unordered_map<Digest, size_t, DigestHash> places;
  for (size_t k = 0; k < piece.committing.size(); ++k) places[piece.committing_digests[k]] = k;
  std::vector<uint8_t> elsewhere(piece.committing.size(), 0);
  for (const RecordRow& row : rows) {
    if (!(row.flags & kRecordResident) || !nodes.usable(row.holder)) continue;
    const size_t k = places.at(row.digest);
    const PinnedPage& ours = piece.committing[k];
    const bool same_length = row.length == ours.length;
    if (same_length) elsewhere[k] = 1;
    const bool differs = !same_length || row.check != static_cast<uint32_t>(ours.checksum);
    nodes.same_keys(row.holder).add(differs);
    set.context.ns->same_keys().add(differs);
  }
  return elsewhere;
}

void SetPieces::commit(SetPages& set, Piece& piece) const {
  std::vector<PinnedPage> kept = piece.pinned;
  kept.insert(kept.end(), piece.committing.begin(), piece.committing.end());
  piece.held.keep(std::move(kept), piece.aborting);
  const std::vector<uint8_t> elsewhere = present_elsewhere(set, piece);
  for (PinnedPage& page : piece.committing) page.born = objects.generation();
  const UnderWay::Work work(publisher.commits());
  std::vector<RecordRow> records_told(piece.committing.size());
  pool.commit(piece.committing, records_told, {}, elsewhere);
  publisher.append(records_told);
  drop_removed(set, piece);
  std::vector<RecordRow> withdrawals;
  pool.withdrawals_of(piece.held.pages(), withdrawals);
  disk.left_pool(withdrawals);
  disk.write_behind(set.context.ns->id(), set.ns.epoch, std::move(piece.held));
  // Only now: a withdrawal must not overtake the record.
  if (fresh.on()) fresh.add(set.context.ns->id(), set.ns.epoch, records_told);
}

// Drops pages with a removal that began before the commit, and so has not seen them. They are
// withdrawn behind their records.
void SetPieces::drop_removed(SetPages& set, const Piece& piece) const {
  if (!running.any()) return;
  std::vector<Digest> removed;
  for (const size_t i : piece.chosen) {
    if (set.pages[i].status != PageStatus::ok || !running.has(set.digests[i])) continue;
    set.pages[i].status = PageStatus::removing;
    removed.push_back(set.digests[i]);
  }
  if (!removed.empty()) disk.drop(removed);
}

}  // namespace peercached
