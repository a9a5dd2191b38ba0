// Conditional updates: applies rows of one holder to one piece.
//
// Decides whether a row is newer, whether its record goes to the table or the further holders, and
// whether there is room. Holds the piece's mutex for its lifetime and settles the counts at the
// end.
#pragma once

#include "common/mutex.h"
#include "shard/holder_table.h"
#include "shard/piece.h"
#include "shard/shard.h"

namespace peercached {

class SCOPED_CAPABILITY PieceUpdate {
 public:
  // `holder` must be on hold in `holders`. `rows_expected`: how much room to reserve at once.
  PieceUpdate(Piece& piece, HolderTable& holders, HolderIndex holder, size_t rows_expected,
              ShardApplied& applied) ACQUIRE(piece.mutex);
  ~PieceUpdate() RELEASE();
  PieceUpdate(const PieceUpdate&) = delete;
  PieceUpdate& operator=(const PieceUpdate&) = delete;

  // Applies a representable row.
  void apply(const RecordRow& row);

  // Whether the piece should grow soon, before an update must do it.
  bool filling_up() const {
    piece_.mutex.assert_held();
    return piece_.filling_up();
  }

 private:
  // The records of one digest.
  struct Siblings {
    PackedRecord own;
    Place own_place = Place::none();
    PackedRecord* own_further = nullptr;  // its location if it is not in the table
    unsigned others_count = 0;            // live, in the table
    bool any = false;                     // whether the table has any record of it
    Place free = Place::none();           // where a new entry could go

    bool has_own() const { return own_place || own_further != nullptr; }
  };

  Siblings find(const Digest& digest) const REQUIRES(piece_.mutex);
  void add(const RecordRow& row, const Siblings& siblings) REQUIRES(piece_.mutex);
  void insert(const RecordRow& row, const Siblings& siblings) REQUIRES(piece_.mutex);
  bool insert_at(Place free, const RecordRow& row) REQUIRES(piece_.mutex);
  void change(const Siblings& siblings, const PackedRecord& record) REQUIRES(piece_.mutex);
  void withdraw(const Siblings& siblings) REQUIRES(piece_.mutex);
  void count_added();
  bool take_room();
  uint64_t rows_to_add() const;

  Piece& piece_;
  HolderTable& holders_;
  const HolderIndex holder_;
  const size_t rows_expected_;
  size_t rows_left_;
  ShardApplied& applied_;
  MutexLock lock_;
  int64_t added_ = 0, removed_ = 0;
  uint64_t room_reserved_ = 0, room_used_ = 0;
};

}  // namespace peercached
