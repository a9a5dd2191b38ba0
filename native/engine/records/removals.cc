#include "engine/records/removals.h"

namespace peercached {

Removals::Begun Removals::begin(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  if (!parts_.running.begin(digests)) return Begun::too_many;
  return remove(digests, rows) ? Begun::kept : Begun::not_kept;
}

void Removals::end(std::span<const Digest> digests) {
  parts_.running.end(digests);
  // A lookup in flight may have cached them meanwhile.
  for (const Digest& digest : digests) parts_.locations.forget(digest);
}

bool Removals::remove(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  for (const Digest& digest : digests) parts_.locations.forget(digest);
  const bool kept = parts_.cold.remove(digests, rows);
  // Records of pages set just before may be in flight. They must not arrive behind the withdrawals.
  parts_.publisher.commits().wait();
  parts_.publisher.tell(rows);
  if (!kept) parts_.janitor.write_removals();
  return kept;
}

bool Removals::drop_all() {
  const bool kept = parts_.cold.drop_all();
  if (!kept) parts_.janitor.write_removals();
  return kept;
}

void Removals::drop_moved(std::span<const RecordRow> records) {
  std::vector<RecordRow> rows;
  parts_.pool.drop_given(records, rows);
  parts_.cold.left_pool(rows);
}

void Removals::hold_back() {
  std::vector<RecordRow> rows;
  if (!parts_.cold.hold_back(rows)) parts_.janitor.write_removals();
  parts_.publisher.tell(rows);
}

void Removals::release_held() {
  parts_.cold.release();
  parts_.publisher.feed().forget();
}

}  // namespace peercached
