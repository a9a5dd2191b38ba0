#include "engine/records/removals.h"

namespace peercached {

Removals::Begun Removals::begin(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  if (!running.begin(digests)) return Begun::too_many;
  return remove(digests, rows) ? Begun::kept : Begun::not_kept;
}

void Removals::end(std::span<const Digest> digests) {
  running.end(digests);
  // A lookup in flight may have cached them meanwhile.
  for (const Digest& digest : digests) locations.forget(digest);
}

bool Removals::remove(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  for (const Digest& digest : digests) locations.forget(digest);
  const bool kept = cold.remove(digests, rows);
  // Records of pages set just before may be in flight. They must not arrive behind the withdrawals.
  publisher.commits().wait();
  publisher.tell(rows);
  if (!kept) janitor.write_removals();
  return kept;
}

bool Removals::drop_all() {
  const bool kept = cold.drop_all();
  if (!kept) janitor.write_removals();
  return kept;
}

void Removals::drop_moved(std::span<const RecordRow> records) {
  std::vector<RecordRow> rows;
  pool.drop_given(records, rows);
  cold.left_pool(rows);
}

void Removals::hold_back() {
  std::vector<RecordRow> rows;
  if (!cold.hold_back(rows)) janitor.write_removals();
  publisher.tell(rows);
}

void Removals::release_held() {
  cold.release();
  publisher.feed().forget();
}

}  // namespace peercached
