#include "engine/storage/disk_pages.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace peercached {

namespace {

RecordRow withdrawal_of(const Digest& digest, Generation generation) {
  RecordRow row;
  row.digest = digest;
  row.generation = generation;
  row.holder = kSelfHolder;
  row.flags = kRecordWithdraw;
  return row;
}

// Calls visit(items) with each part that next(items) appends. next() returns false with the last.
template <typename Item>
void for_each_part(const auto& next, const auto& visit) {
  std::vector<Item> items;
  for (bool more = true; more;) {
    items.clear();
    more = next(items);
    visit(std::span<const Item>(items));
  }
}

std::vector<Digest> digests_of(const auto& items) {
  std::vector<Digest> digests;
  for (const auto& item : items) digests.push_back(item.digest);
  return digests;
}

bool same_content(const DiskPage& page, const RecordRow& row) {
  return page.length == row.length && static_cast<uint32_t>(page.checksum) == row.check;
}

}  // namespace

RecordRow record_of(const DiskPage& page, Generation generation) {
  RecordRow row;
  row.digest = page.digest;
  row.generation = generation;
  row.check = static_cast<uint32_t>(page.checksum);
  row.length = page.length;
  row.holder = kSelfHolder;
  return row;
}

void DiskPages::end() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  tier_.reset();  // outside the mutex, because its threads may still report to us
}

void DiskPages::write_behind(const Digest& namespace_id, uint64_t epoch, HeldSlots held,
                             bool again) {
  if (!tier_ || !namespaces_.in_force(namespace_id, epoch)) return;
  const std::span<PinnedPage> pages = held.pages();
  std::vector<RecordRow> rows(pages.size()), removed;
  HeldSlots replacing(pool_);
  std::vector<Removed> replaced;
  {
    std::lock_guard lock(mutex_);
    // A removal needs this mutex. So it drops a page that is in the pool now only after our put,
    // and the tier forgets the page again.
    pool_.rows_of(pages, rows);
    pool_.withdrawals_of(pages, removed);
    for (size_t i = 0; i < pages.size(); ++i) {
      PinnedPage& page = pages[i];
      const bool gone = std::any_of(removed.begin(), removed.end(), [&](const RecordRow& row) {
        return row.digest == rows[i].digest;
      });
      DiskPage on_disk;
      on_disk.digest = rows[i].digest;
      on_disk.namespace_id = namespace_id;
      on_disk.epoch = epoch;
      on_disk.checksum = page.checksum;
      on_disk.length = page.length;
      on_disk.born = page.born_of();
      // The key has new content: as if the page on the disk had been removed.
      const auto older = gone ? std::nullopt : tier_->find(on_disk.digest);
      if (older && !same_content(*older, rows[i])) {
        tier_->remove({&on_disk.digest, 1});
        replaced.push_back({on_disk.digest});
        replacing.take(page);
        continue;
      }
      // Another set of the same page may have queued it before our entry, which then voids it.
      if (again) tier_->remove({&on_disk.digest, 1});
      on_disk.set_at = journal_.last();
      const auto done = [this, page, drops = drops_](bool ok) { written(page, ok, drops); };
      if (!gone && tier_->put(on_disk, page.payload(), done) == PutOutcome::queued) page = {};
    }
  }
  if (replaced.empty()) return;
  held = HeldSlots(pool_);
  // The new pages must carry the position of these entries, or a restart would take them for the
  // removed ones. Without the mutex, so that nobody else waits for a state_dir that hangs.
  write_down(replaced);
  write_behind(namespace_id, epoch, std::move(replacing), true);
}

void DiskPages::written(const PinnedPage& page, bool on_disk, uint64_t drops) {
  std::vector<RecordRow> dropped;
  pool_.withdrawals_of({&page, 1}, dropped);
  pool_.unpin({&page, 1});
  if (!on_disk || dropped.empty()) return;
  // It was dropped while pinned for us, and withdrawn because it was not on disk yet.
  RecordRow row = dropped[0];
  std::lock_guard lock(mutex_);
  if (ended_) return;
  if (drops != drops_) return tier_->remove({&row.digest, 1});  // drop_all() could not see it
  row.generation = pool_.next_generation();
  uint8_t in_pool = 0;
  pool_.contains({&row.digest, 1}, false, {&in_pool, 1});
  const auto now = find(row.digest);
  if (in_pool != 0 || !now || !same_content(*now, row)) return;
  row.flags = 0;
  row.offset = 0;
  tell_({&row, 1});
}

void DiskPages::promoted(std::span<const DiskPage> sources, std::span<PinnedPage> pages,
                         bool used) {
  std::vector<PinnedPage> committing;
  std::vector<uint8_t> uses;
  HeldSlots aborting(pool_);
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto now = find(sources[i].digest);
    if (now && now->length == sources[i].length && now->checksum == sources[i].checksum) {
      pages[i].checksum = sources[i].checksum;
      pages[i].born = std::min(sources[i].born, now->born);
      committing.push_back(pages[i]);
      uses.push_back(static_cast<uint8_t>(std::min(now->uses + (used ? 1 : 0), UINT8_MAX)));
    } else {
      aborting.take(pages[i]);
    }
  }
  if (committing.empty()) return;
  std::vector<RecordRow> rows(committing.size());
  pool_.commit(committing, rows);
  pool_.set_uses(committing, uses);
  tell_(rows);
}

void DiskPages::adopted(const Running::Taking& taking, std::span<const Digest> digests,
                        HeldSlots& pages, std::vector<RecordRow>& rows, const Adoption& adoption,
                        std::optional<TimePoint> valid_until) {
  HeldSlots committing(pool_), aborting(pool_);
  // A removal dooms a page first and then drops it, under this mutex. So it sees our page, or we
  // see its doom.
  std::lock_guard lock(mutex_);
  const bool late = valid_until && Clock::now() >= *valid_until;
  for (size_t i = 0; i < digests.size(); ++i)
    (late || taking.doomed(digests[i]) ? aborting : committing).take(pages.pages()[i]);
  rows.resize(committing.pages().size());
  pool_.commit(committing.pages(), rows, adoption);
  pages = std::move(committing);
}

void DiskPages::left_pool(std::span<const RecordRow> rows) {
  if (rows.empty()) return;
  std::vector<RecordRow> told(rows.begin(), rows.end());
  std::lock_guard lock(mutex_);
  for (RecordRow& row : told) {
    const uint8_t uses = std::exchange(row.uses, 0);
    if (uses != 0 && tier_ && !ended_) tier_->set_uses(row.digest, uses);
  }
  withdraw_of_disk(told);
}

size_t DiskPages::give_away(std::span<const RecordRow> records, bool unless_kept) {
  std::vector<RecordRow> rows;
  std::lock_guard lock(mutex_);
  pool_.give_away(records, unless_kept, rows);
  withdraw_of_disk(rows);
  return rows.size();
}

void DiskPages::withdraw_of_disk(std::span<RecordRow> withdrawals) {
  if (withdrawals.empty()) return;
  for (RecordRow& row : withdrawals) {
    const auto page = ended_ ? std::nullopt : find(row.digest);
    if (!page || !same_content(*page, row)) continue;
    row.flags = 0;
    row.offset = 0;
  }
  tell_(withdrawals);
}

void DiskPages::left_disk(std::span<const DiskPage> pages) {
  std::vector<RecordRow> rows;
  not_here(digests_of(pages), rows);
}

void DiskPages::not_here(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  if (digests.empty()) return;
  std::vector<RecordRow> gone;
  std::lock_guard lock(mutex_);
  // Before the look into the pool: a page that is committed after the look has a newer generation,
  // so its record stands.
  for (const Digest& digest : digests)
    gone.push_back(withdrawal_of(digest, pool_.next_generation()));
  std::vector<uint8_t> here(digests.size());
  pool_.contains(digests, false, here);
  if (!ended_) find_all(digests, here);
  size_t kept = 0;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (here[i] == 0) gone[kept++] = gone[i];
  }
  gone.resize(kept);
  if (!gone.empty()) tell_(gone);
  rows.insert(rows.end(), gone.begin(), gone.end());
}

std::map<Digest, uint64_t> DiskPages::epochs() const {
  // A namespace that was cleared and has no page since is known by its floor alone.
  std::map<Digest, uint64_t> epochs = tier_->floors();
  uint64_t at = 0;
  for_each_part<DiskPage>([&](auto& pages) { return tier_->scan(at, pages); },
                          [&](const auto& pages) {
                            for (const DiskPage& page : pages) {
                              if (page.epoch == 0) continue;
                              uint64_t& epoch = epochs[page.namespace_id];
                              epoch = std::max(epoch, page.epoch);
                            }
                          });
  return epochs;
}

std::optional<DiskPage> DiskPages::find(const Digest& digest) const {
  if (!tier_) return std::nullopt;
  auto page = tier_->find(digest);
  if (page && (hidden(*page) || !namespaces_.in_force(page->namespace_id, page->epoch)))
    return std::nullopt;
  return page;
}

void DiskPages::find_all(std::span<const Digest> digests, std::span<uint8_t> out) const {
  if (!tier_) return;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (out[i] == 0 && find(digests[i])) out[i] = 1;
  }
}

bool DiskPages::write_waiting() {
  const bool written = journal_.write_waiting();
  note_removals();
  return written;
}

void DiskPages::note_removals() {
  const TierNote note = journal_.note();
  pool_.note_removals(note);
  if (tier_) tier_->note_removals(note);
}

bool DiskPages::write_down(std::span<const Removed> removed) {
  const bool written = journal_.append(removed);
  note_removals();
  return written;
}

bool DiskPages::remove(std::span<const Removed> removed, std::vector<RecordRow>& rows) {
  {
    std::lock_guard lock(mutex_);
    remove_both(digests_of(removed), rows);
  }
  return write_down(removed) && journal_.sync();
}

void DiskPages::drop(std::span<const Digest> digests) {
  std::vector<RecordRow> rows;
  std::lock_guard lock(mutex_);
  remove_both(digests, rows);
  if (!rows.empty()) tell_(rows);
}

bool DiskPages::drop_all() {
  const auto drop_those = [&](const auto& some) { drop(digests_of(some)); };
  const auto drop_pool = [&] {
    uint32_t slot = 0;
    for_each_part<RecordRow>([&](auto& rows) { return pool_.scan(slot, rows); }, drop_those);
  };
  drop_pool();
  if (tier_) {
    {
      std::lock_guard lock(mutex_);
      ++drops_;
    }
    uint64_t at = 0;
    for_each_part<DiskPage>([&](auto& pages) { return tier_->scan(at, pages); }, drop_those);
    drop_pool();  // pages that came from the disk meanwhile
  }
  release();  // not before: pages that are hidden may have been removed elsewhere
  const bool written = journal_.forget();
  note_removals();
  return written && journal_.sync();
}

bool DiskPages::hide_older(std::vector<RecordRow>& rows) {
  {
    // First: no page comes from the disk, or goes there to be seen, behind the scan of the pool.
    std::lock_guard lock(mutex_);
    hidden_below_.store(UINT64_MAX, std::memory_order_release);
  }
  uint32_t slot = 0;
  for_each_part<RecordRow>([&](auto& found) { return pool_.scan(slot, found); },
                           [&](const auto& found) { pool_.remove(digests_of(found), rows); });
  {
    std::lock_guard lock(mutex_);
    hidden_below_.store(journal_.last() + 1, std::memory_order_release);
  }
  // An entry of no page gives a position that no page carries. Pages that are set before it is
  // written are hidden as well: misses, not old pages.
  const Removed none{};
  return write_down({&none, 1});
}

void DiskPages::remove_both(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  if (!tier_) {
    pool_.remove(digests, rows);
    return;
  }
  std::vector<uint8_t> on_disk(digests.size());
  find_all(digests, on_disk);
  tier_->remove(digests);
  // As in not_here: drawn after the removal, before the look into the pool.
  std::vector<RecordRow> disk;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (on_disk[i] != 0) disk.push_back(withdrawal_of(digests[i], pool_.next_generation()));
  }
  const size_t before = rows.size();
  pool_.remove(digests, rows);
  std::unordered_set<Digest, DigestHash> told;
  for (size_t i = before; i < rows.size(); ++i) told.insert(rows[i].digest);
  for (const RecordRow& row : disk) {
    if (told.insert(row.digest).second) rows.push_back(row);
  }
}

void DiskPages::drop_below(const std::map<Digest, uint64_t>& epochs) {
  if (!tier_) return;
  // The disk has nothing below an epoch that it knows already, as after most starts.
  const std::map<Digest, uint64_t> known = tier_->floors();
  std::map<Digest, uint64_t> below;
  for (const auto& [id, epoch] : epochs) {
    const auto floor = known.find(id);
    if (floor == known.end() || floor->second < epoch) below.emplace(id, epoch);
  }
  if (below.empty()) return;
  // These epochs are over, so no page of them is published anew.
  uint64_t at = 0;
  for_each_part<DiskPage>([&](auto& pages) { return tier_->scan(at, pages); },
                          [&](const auto& pages) {
                            std::vector<RecordRow> rows;
                            for (const DiskPage& page : pages) {
                              const auto floor = below.find(page.namespace_id);
                              if (floor != below.end() && page.epoch < floor->second)
                                rows.push_back(withdrawal_of(page.digest, pool_.next_generation()));
                            }
                            if (rows.empty()) return;
                            std::lock_guard lock(mutex_);
                            tell_(rows);
                          });
  for (const auto& [id, epoch] : below) tier_->drop_namespace(id, epoch);
}

bool DiskPages::scan(Scan& at, std::vector<RecordRow>& rows) const {
  if (at.in_pool) {
    at.in_pool = pool_.scan(at.slot, rows);
    return at.in_pool || tier_;
  }
  std::vector<DiskPage> pages;
  const bool more = tier_->scan(at.page, pages);
  std::vector<uint8_t> in_pool(pages.size());
  pool_.contains(digests_of(pages), false, in_pool);
  for (size_t i = 0; i < pages.size(); ++i) {
    if (in_pool[i] == 0 && !hidden(pages[i]) &&
        namespaces_.in_force(pages[i].namespace_id, pages[i].epoch)) {
      rows.push_back(record_of(pages[i], at.as_of));
    }
  }
  return more;
}

}  // namespace peercached
