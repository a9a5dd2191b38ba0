// The pages on this node's disk, and the records that the directory has of them.
//
//   in the pool   on disk   record at the owners
//   no            no        none
//   yes           no        resident: not written yet, or skipped; withdrawn on eviction
//   yes           yes       resident
//   no            yes       non-resident: no offset, the generation of the change
//
// Owners keep no tombstones: a record that arrives after its withdrawal would stay for ever. So
// leaving the pool, leaving the disk or being removed is one step with the posting of the record,
// under one mutex. A page that enters the pool does not need the mutex. Its record is posted while
// it is pinned, and its generation is above all earlier ones.
//
// Without a disk tier every page that leaves the pool is withdrawn. Thread safe.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/types.h"
#include "disk/disk_tier.h"
#include "engine/storage/namespaces.h"
#include "pool/held_slots.h"
#include "pool/pool.h"
#include "removals/journal.h"
#include "removals/running.h"

namespace peercached {

// The record of a page that is on disk only.
RecordRow record_of(const DiskPage& page, Generation generation);

class DiskPages {
 public:
  // Sends records and withdrawals to followers, in order.
  using Tell = std::function<void(std::span<const RecordRow>)>;

  DiskPages(Pool& pool, const NamespaceTable& namespaces, Journal& journal, Tell tell)
      : pool_(pool), namespaces_(namespaces), journal_(journal), tell_(std::move(tell)) {}

  // Call once, before anything is set. The tier may call left_disk() (its DiskEvicted) even
  // earlier.
  void start(std::unique_ptr<DiskTier> tier) { tier_ = std::move(tier); }
  // Ends the tier, which writes its queue out within a time limit. Call when nobody reads or sets
  // any more. Pages that leave the pool later are withdrawn.
  void end();
  bool enabled() const { return tier_ != nullptr; }
  DiskTier& tier() const { return *tier_; }

  // Holds the pages until they are written or skipped. `checksum` must be set.
  void write_behind(const Digest& namespace_id, uint64_t epoch, HeldSlots pages) {
    write_behind(namespace_id, epoch, std::move(pages), false);
  }

  // Commits reserved pages that were read from the disk as `sources`, and publishes their records.
  // They stay pinned. A page that was removed or replaced meanwhile is aborted, and its entry
  // becomes empty. `used`: somebody reads them now.
  void promoted(std::span<const DiskPage> sources, std::span<PinnedPage> pages, bool used);

  // Commits reserved pages that were READ from a peer, and fills `rows` with their records. Doomed
  // pages are aborted and leave `pages`, and so are all from `valid_until` on. digests[i] belongs
  // to pages[i].
  void adopted(const Running::Taking& taking, std::span<const Digest> digests, HeldSlots& pages,
               std::vector<RecordRow>& rows, const Adoption& adoption,
               std::optional<TimePoint> valid_until = {});

  // Takes withdrawals of pages that left the pool. A page on disk gets a non-resident record
  // instead, and keeps the count of its uses.
  void left_pool(std::span<const RecordRow> rows);
  // Another node has taken the pages of these records. We drop them from the pool soon, and tell
  // the owners now that they have left it, so that readers go to the other node.
  // `unless_kept`: see Pool::give_away(). Returns how many pages leave.
  size_t give_away(std::span<const RecordRow> records, bool unless_kept = false);
  // Withdraws pages that the tier has lost, unless they are in the pool or on disk again.
  void left_disk(std::span<const DiskPage> pages);
  // For pages that a peer asked for and this disk does not have: some owner has a wrong record.
  // Withdraws those that really are not here, and appends the withdrawals to `rows`.
  void not_here(std::span<const Digest> digests, std::vector<RecordRow>& rows);

  // False without a tier, and while the disk does not answer: a page from find() cannot be read
  // then.
  bool readable() const { return tier_ && tier_->stats().state != DiskState::stalled; }
  // The highest epoch that the disk knows of each namespace, where it is above 0.
  std::map<Digest, uint64_t> epochs() const;

  // The page, if it is on disk, not held back, and of the current epoch.
  std::optional<DiskPage> find(const Digest& digest) const;
  // Sets out[i] = 1 where find() would find the page. Other entries stay unchanged.
  void find_all(std::span<const Digest> digests, std::span<uint8_t> out) const;

  // Removes pages from pool and disk for good. Appends the withdrawals of pages that were here, for
  // the caller to send. False: the journal could not be written, so a restart may bring the pages
  // back.
  bool remove(std::span<const Removed> removed, std::vector<RecordRow>& rows);
  // Removes pages that were set while they were being removed. The journal gets no entry: such a
  // copy may come back after a restart, as after a removal that was not answered.
  void drop(std::span<const Digest> digests);
  // Removes all pages from pool and disk for good. False: the journal could not be written, so a
  // restart may bring the pages back.
  bool drop_all();
  // Hides the pages on disk until release(), because they may have been removed elsewhere. Drops
  // the pages in the pool. False: the journal could not be written, so a restart would not know.
  bool hide_older(std::vector<RecordRow>& rows);
  void release() { hidden_below_.store(0, std::memory_order_release); }
  // Retries journal entries that could not be written. False: they still cannot.
  bool write_waiting();
  // Passes the journal's current note to pool file and disk: at start, and with each removal.
  void note_removals();
  // Drops each namespace's pages below its epoch. Disk only, in one scan.
  void drop_below(const std::map<Digest, uint64_t>& epochs);

  // A scan of the records of all pages in the pool, then of those on disk only, in parts of about a
  // thousand. Changes after its generation may be missing. A page that changes meanwhile may come
  // in both forms.
  struct Scan {
    Generation as_of;
    uint32_t slot = 0;
    uint64_t page = 0;  // on disk
    bool in_pool = true;
  };
  Scan begin_scan() const { return {.as_of = pool_.next_generation()}; }
  // Appends the next part. False: it was the last.
  bool scan(Scan& at, std::vector<RecordRow>& rows) const;

 private:
  // `again`: these pages have replaced others of their keys on the disk.
  void write_behind(const Digest& namespace_id, uint64_t epoch, HeldSlots pages, bool again);
  // Journals the removals. The pages must be gone from pool and disk. May hang with state_dir, so
  // call it without mutex_.
  bool write_down(std::span<const Removed> removed);
  // Requires mutex_.
  void remove_both(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  // Sends them; a page on disk gets a non-resident record instead. Requires mutex_.
  void withdraw_of_disk(std::span<RecordRow> withdrawals);
  // A page's write has ended: releases our pin. `drops`: drops_ when it was queued.
  void written(const PinnedPage& page, bool on_disk, uint64_t drops);
  bool hidden(const DiskPage& page) const {
    return page.set_at < hidden_below_.load(std::memory_order_acquire);
  }

  Pool& pool_;
  const NamespaceTable& namespaces_;
  Journal& journal_;
  const Tell tell_;
  std::atomic<Position> hidden_below_{0};  // disk pages set before this position are hidden
  // See the top of the file. Lock order: before the pool's and the tier's.
  std::mutex mutex_;
  uint64_t drops_ = 0;  // calls of drop_all()
  bool ended_ = false;
  std::unique_ptr<DiskTier> tier_;
};

}  // namespace peercached
