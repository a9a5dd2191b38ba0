#include "shard/update.h"

#include <algorithm>

namespace peercached {

PieceUpdate::PieceUpdate(Piece& piece, HolderTable& holders, HolderIndex holder,
                         size_t rows_expected, ShardApplied& applied)
    : piece_(piece),
      holders_(holders),
      holder_(holder),
      rows_expected_(rows_expected),
      rows_left_(rows_expected),
      applied_(applied),
      lock_(piece.mutex) {}

PieceUpdate::~PieceUpdate() {
  if (added_ != 0 || removed_ != 0 || room_reserved_ != 0)
    holders_.settle(holder_, added_, removed_, room_reserved_);
  // Settle before a rebuild drops some of these records; it accounts for what it drops.
  if (removed_ > 0) piece_.shrink_if_sparse(holders_);
}

inline PieceUpdate::Siblings PieceUpdate::find(const Digest& digest) const {
  Siblings found;
  found.free = piece_.for_each_of(digest, [&](Place place, const PackedRecord& record) {
    found.any = true;
    if (record.holder() == holder_) {
      found.own_place = place;
      found.own = record;
    } else {
      found.others_count += holders_.live(record.holder());
    }
  });
  if (found.any && !found.own_place && !piece_.further().empty()) {
    found.own_further = piece_.further().find(digest, holder_);
    if (found.own_further != nullptr) found.own = *found.own_further;
  }
  return found;
}

// Flattened, because calls to its steps would cost 5 % of the time of a report.
[[gnu::flatten]] void PieceUpdate::apply(const RecordRow& row) {
  piece_.mutex.assert_held();
  const Siblings siblings = find(row.digest);
  const bool withdrawal = row.flags & kRecordWithdraw;
  if (!siblings.has_own()) {
    if (withdrawal)
      ++applied_.old;
    else
      add(row, siblings);
  } else {
    const Generation generation = siblings.own.generation();
    if (withdrawal) {
      if (generation > row.generation)
        ++applied_.old;
      else
        withdraw(siblings);
    } else if (generation < row.generation) {
      change(siblings, PackedRecord::of(row, holder_));
    } else {
      ++applied_.old;
    }
  }
  if (rows_left_ > 0) --rows_left_;
}

void PieceUpdate::change(const Siblings& siblings, const PackedRecord& record) {
  if (siblings.own_place)
    piece_.overwrite(siblings.own_place, record);
  else
    *siblings.own_further = record;
  ++applied_.changed;
}

void PieceUpdate::withdraw(const Siblings& siblings) {
  if (siblings.own_place)
    piece_.remove(siblings.own_place, holders_);
  else
    piece_.further().remove(siblings.own);
  ++removed_;
  ++applied_.withdrawn;
}

void PieceUpdate::add(const RecordRow& row, const Siblings& siblings) {
  if (!take_room()) {
    ++applied_.full;
  } else if (siblings.others_count >= kHoldersPerDigestMax) {
    piece_.further().add(PackedRecord::of(row, holder_));
    count_added();
  } else if (piece_.crowded()) {
    piece_.grow(rows_to_add(), holders_);
    insert(row, find(row.digest));  // the records have moved
  } else {
    insert(row, siblings);
  }
}

void PieceUpdate::insert(const RecordRow& row, const Siblings& siblings) {
  Place free = siblings.free;
  if (holders_.dead_records() > 0) free = piece_.free_slot(row.digest, holders_);
  bool inserted = insert_at(free, row);
  if (!inserted && piece_.clustered()) {
    piece_.grow(rows_to_add(), holders_);
    inserted = insert_at(find(row.digest).free, row);
  }
  if (!inserted) ++applied_.full;
}

inline bool PieceUpdate::insert_at(Place free, const RecordRow& row) {
  if (!free) return false;
  piece_.insert(free, PackedRecord::of(row, holder_));
  count_added();
  return true;
}

void PieceUpdate::count_added() {
  ++room_used_;
  ++added_;
  ++applied_.added;
}

// Estimates how many of the remaining rows need room, from the share of rows so far that did. So a
// bulk load grows its piece once instead of in ten steps, and updates of stored records do not grow
// it.
uint64_t PieceUpdate::rows_to_add() const {
  const size_t rows_done = rows_expected_ - rows_left_;
  return rows_done == 0 ? 0 : room_used_ * rows_left_ / rows_done;
}

bool PieceUpdate::take_room() {
  if (room_used_ == room_reserved_)
    room_reserved_ += holders_.reserve(std::max<size_t>(rows_left_, 1));
  return room_used_ < room_reserved_;
}

}  // namespace peercached
