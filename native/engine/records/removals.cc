#include "engine/records/removals.h"

namespace peercached {

Removals::Begun Removals::begin(std::span<const Digest> digests, uint64_t removal,
                                std::vector<RecordRow>& rows) {
  if (!running.begin(digests)) return Begun::too_many;
  std::vector<Removed> removed;
  removed.reserve(digests.size());
  for (const Digest& digest : digests) removed.push_back({digest, removal});
  return remove(removed, rows) ? Begun::in_journal : Begun::not_in_journal;
}

void Removals::end(std::span<const Digest> digests) {
  running.end(digests);
  // A lookup in flight may have cached them meanwhile.
  for (const Digest& digest : digests) locations.forget(digest);
}

bool Removals::remove(std::span<const Removed> removed, std::vector<RecordRow>& rows) {
  for (const Removed& one : removed) locations.forget(one.digest);
  const bool in_journal = disk.remove(removed, rows);
  // Records of pages set just before may be in flight. They must not arrive behind the withdrawals.
  publisher.commits().wait();
  publisher.append(rows);
  if (!in_journal) janitor.write_removals();
  return in_journal;
}

bool Removals::drop_all() {
  const bool in_journal = disk.drop_all();
  if (!in_journal) janitor.write_removals();
  return in_journal;
}

void Removals::drop_moved(std::span<const RecordRow> records) {
  std::vector<RecordRow> rows;
  pool.drop_given(records, rows);
  disk.left_pool(rows);
}

void Removals::hide_older() {
  std::vector<RecordRow> rows;
  if (!disk.hide_older(rows)) janitor.write_removals();
  publisher.append(rows);
  // Followers may have records of pages that are on the disk only.
  publisher.forget();
}

void Removals::show_older() {
  disk.release();
  publisher.forget();
}

}  // namespace peercached
