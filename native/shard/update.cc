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
  // Counted before a rebuild may drop some of them: it accounts for what it drops.
  if (removed_ > 0) applied_.full += piece_.shrink_if_sparse(holders_);
}

inline PieceUpdate::Siblings PieceUpdate::find(const Digest& digest) const {
  Siblings found;
  found.free = piece_.for_each_of(digest, [&](Place place, const PackedRecord& record) {
    if (record.holder() == holder_) {
      found.own = Stored{place, record};
      return;
    }
    if (found.others_count == kHoldersPerDigestMax || !holders_.live(record.holder())) return;
    unsigned at = found.others_count++;
    for (; at > 0 && found.others[at - 1].record.age() > record.age(); --at)
      found.others[at] = found.others[at - 1];
    found.others[at] = {place, record};
  });
  return found;
}

// Flatten: as calls, its steps are a twentieth of a report.
[[gnu::flatten]] void PieceUpdate::apply(const RecordRow& row, std::optional<Generation> as_of) {
  const Siblings siblings = find(row.digest);
  const bool withdrawal = row.flags & kRecordWithdraw;
  if (!siblings.own) {
    if (withdrawal)
      ++applied_.old;
    else
      add(row, siblings);
  } else {
    const auto& [place, stored] = *siblings.own;
    const Generation generation = stored.generation();
    if (withdrawal) {
      if (generation > row.generation)
        ++applied_.old;
      else
        withdraw(place);
    } else if (generation < row.generation ||
               (as_of && generation <= *as_of &&
                stored != PackedRecord::of(row, holder_, stored.age()))) {
      const unsigned age = newest_age(siblings, 0);
      piece_.overwrite(place, PackedRecord::of(row, holder_, age));
      ++applied_.changed;
    } else {
      ++applied_.old;
    }
  }
  if (rows_left_ > 0) --rows_left_;
}

void PieceUpdate::withdraw(Place place) {
  piece_.erase(place);
  ++removed_;
  ++applied_.withdrawn;
}

void PieceUpdate::add(const RecordRow& row, const Siblings& siblings) {
  if (siblings.others_count == kHoldersPerDigestMax) {
    // The oldest gives way, in its own slot, so that no reader sees more or fewer than three.
    const Stored& oldest = siblings.others[0];
    const unsigned age = newest_age(siblings, 1);
    piece_.overwrite(oldest.place, PackedRecord::of(row, holder_, age));
    holders_.removed(oldest.record.holder());
    ++added_;
    ++applied_.added;
  } else if (!take_room()) {
    ++applied_.full;
  } else if (piece_.crowded()) {
    applied_.full += piece_.grow(rows_to_add(), holders_);
    insert(row, find(row.digest));  // they have moved
  } else {
    insert(row, siblings);
  }
}

void PieceUpdate::insert(const RecordRow& row, const Siblings& siblings) {
  Place free = siblings.free;
  if (holders_.dead_records() > 0) free = piece_.free_slot(row.digest, holders_);
  bool inserted = insert_at(free, row, siblings);
  if (!inserted && piece_.clustered()) {
    applied_.full += piece_.grow(rows_to_add(), holders_);
    const Siblings moved = find(row.digest);
    inserted = insert_at(moved.free, row, moved);
  }
  if (!inserted) ++applied_.full;
}

inline bool PieceUpdate::insert_at(Place free, const RecordRow& row, const Siblings& siblings) {
  if (!free) return false;
  const unsigned age = newest_age(siblings, 0);
  piece_.insert(free, PackedRecord::of(row, holder_, age));
  ++room_used_;
  ++added_;
  ++applied_.added;
  return true;
}

// Renumbers the others (but for the `skip` oldest), and returns the age above theirs.
unsigned PieceUpdate::newest_age(const Siblings& siblings, unsigned skip) {
  unsigned age = 0;
  for (unsigned i = skip; i < siblings.others_count; ++i, ++age) {
    const auto& [place, record] = siblings.others[i];
    if (record.age() != age) piece_.overwrite(place, record.with_age(age));
  }
  return age;
}

// How many of the rows to come will want room, if they are like those before: a bulk load makes its
// piece large at once and not in ten steps, and an update of what is there makes it no larger.
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
