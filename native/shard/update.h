// Conditional updates: rows of one holder, applied to one piece.
//
// The one place that decides whether a row is newer, which record of a crowded digest gives way,
// and whether there is room. Holds the piece's mutex and settles the counts at its end.
#pragma once

#include <array>
#include <mutex>
#include <optional>

#include "shard/holder_table.h"
#include "shard/piece.h"
#include "shard/shard.h"

namespace peercached {

class PieceUpdate {
 public:
  // `holder` is on hold in `holders`. `rows_expected`: how much room to ask for at once.
  PieceUpdate(Piece& piece, HolderTable& holders, HolderIndex holder, size_t rows_expected,
              ShardApplied& applied);
  ~PieceUpdate();
  PieceUpdate(const PieceUpdate&) = delete;
  PieceUpdate& operator=(const PieceUpdate&) = delete;

  // A representable row. With `as_of`, the row overrules what is stored up to that generation,
  // newer or not: the holder has said what it has.
  void apply(const RecordRow& row, std::optional<Generation> as_of = std::nullopt);

  // Whether the piece had better be grown before it must be.
  bool filling_up() const { return piece_.filling_up(); }

  // Removes a record of the holder.
  void withdraw(Place place);

 private:
  struct Stored {
    Place place;
    PackedRecord record;
  };
  // The records of one digest: the holder's own, and the live ones of others by age.
  struct Siblings {
    std::optional<Stored> own;
    std::array<Stored, kHoldersPerDigestMax> others;
    unsigned others_count = 0;
    Place free = Place::none();  // where another could go
  };

  Siblings find(const Digest& digest) const;
  void add(const RecordRow& row, const Siblings& siblings);
  void insert(const RecordRow& row, const Siblings& siblings);
  bool insert_at(Place free, const RecordRow& row, const Siblings& siblings);
  unsigned newest_age(const Siblings& siblings, unsigned skip);
  bool take_room();
  uint64_t rows_to_add() const;

  Piece& piece_;
  HolderTable& holders_;
  const HolderIndex holder_;
  const size_t rows_expected_;
  size_t rows_left_;
  ShardApplied& applied_;
  std::unique_lock<std::mutex> lock_;
  int64_t added_ = 0, removed_ = 0;
  uint64_t room_reserved_ = 0, room_used_ = 0;
};

}  // namespace peercached
