// The pages that are on this node's disk, and what the directory is told of them.
//
//   in the pool   on disk   record at the owners
//   no            no        none
//   yes           no        resident: not written yet, or skipped; dropped when evicted
//   yes           yes       resident
//   no            yes       non-resident: no offset, the generation of the change
//
// Owners keep no tombstones: a record that comes behind the withdrawal that was meant for it stays
// for ever. So what decides between the rows of this table (a page leaves the pool, leaves the
// disk, is removed) and the posting of what it decided are one step, under one mutex. A page that
// comes into the pool needs none of it: its record is posted while it is pinned, and has a
// generation above all that was decided before.
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
#include "engine/namespaces.h"
#include "pool/pool.h"
#include "removals/journal.h"
#include "removals/running.h"

namespace peercached {

class ColdPages {
 public:
  // Takes records and withdrawals to the owners, in order.
  using Tell = std::function<void(std::span<const RecordRow>)>;

  ColdPages(Pool& pool, const NamespaceTable& namespaces, Journal& journal, Tell tell)
      : pool_(pool), namespaces_(namespaces), journal_(journal), tell_(std::move(tell)) {}

  // Once, before anything is set. left_disk() is the tier's DiskEvicted from before that on.
  void start(std::unique_ptr<ColdTier> tier) { tier_ = std::move(tier); }
  // Ends the tier, which writes out what is queued within its bound. Nobody reads or sets any more;
  // pages that still leave the pool are withdrawn.
  void end();
  bool enabled() const { return tier_ != nullptr; }
  ColdTier& tier() const { return *tier_; }

  // Takes over one pin of each page, `checksum` set, and lets go when it is written or skipped.
  void write_behind(const Digest& namespace_id, uint64_t epoch, std::span<const PinnedPage> pages);

  // Commits reserved pages that were read from the disk as `sources`, and tells of them; they stay
  // pinned. Those that were removed or replaced meanwhile are aborted, and empty.
  void promoted(std::span<const DiskPage> sources, std::span<PinnedPage> pages);

  // Commits reserved pages that were READ from a peer, but for those that are doomed, which are
  // aborted and leave `pages`, too. `digests` are theirs; fills `rows`.
  void adopted(const Running::Taking& taking, std::span<const Digest> digests,
               std::vector<PinnedPage>& pages, std::vector<RecordRow>& rows, uint32_t idle_ms);

  // Withdrawals of pages that are out of the pool: told as such, or as non-resident records.
  void left_pool(std::span<const RecordRow> rows);
  // Pages that the tier has lost: withdrawn unless they are in the pool.
  void left_disk(std::span<const DiskPage> pages);
  // Pages that somebody looked for on this disk in vain: an owner has a record that it should not
  // have. Withdraws them unless they are here after all; appends what it has told to `rows`.
  void not_here(std::span<const Digest> digests, std::vector<RecordRow>& rows);

  // Whether a page that find() knows can be expected to come: the disk answers.
  bool readable() const { return tier_ && tier_->stats().state != DiskState::stalled; }
  // The highest epoch of the pages of each namespace on disk, where it is above 0.
  std::map<Digest, uint64_t> epochs() const;

  // On disk, and of an epoch that is in force.
  std::optional<DiskPage> find(const Digest& digest) const;
  // out[i] = 1 for those; out[i] is left alone otherwise.
  void find_all(std::span<const Digest> digests, std::span<uint8_t> out) const;

  // From pool and disk, for ever; appends the withdrawals of what was held, to be told by the
  // caller. False: they are gone, but that could not be written down, and a restart may bring them
  // back.
  bool remove(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  // Pages that were set while they were being removed. Nothing is written down: a copy set at such
  // a moment may be back after a restart, as one whose removal was not answered.
  void drop(std::span<const Digest> digests);
  // Everything that is here, for ever; false: a restart may bring it back.
  bool drop_all();
  // What is on the disk now is not found until release(): it may have been removed elsewhere. What
  // is in the pool goes. Returns false if a restart would not know (nothing can be written down).
  bool hold_back(std::vector<RecordRow>& rows);
  void release() { hidden_below_.store(0, std::memory_order_release); }
  // Tries again what could not be written down; false: it still cannot.
  bool write_waiting();
  // Pool file and disk know the journal as it is: at start, and with each removal.
  void note_removals();
  // Of namespaces, what has an epoch below that: from the disk only, in one look at all its pages.
  void drop_below(const std::map<Digest, uint64_t>& epochs);

  // Records of all pages in the pool, then of those that are on disk only, with the generation
  // `as_of` that it returns: changes above it may be missing. A page that changes meanwhile may
  // come in both forms.
  Generation scan(const std::function<void(std::span<const RecordRow>)>& visit) const;

 private:
  // Of pages that are gone from both.
  bool write_down(std::span<const Digest> digests);
  // With mutex_ held.
  void remove_both(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  // A page's write is done, and so is our pin.
  void written(const PinnedPage& page, bool on_disk);
  bool hidden(const DiskPage& page) const {
    return page.set_at < hidden_below_.load(std::memory_order_acquire);
  }
  void scan_disk(Generation as_of,
                 const std::function<void(std::span<const RecordRow>)>& visit) const;

  Pool& pool_;
  const NamespaceTable& namespaces_;
  Journal& journal_;
  const Tell tell_;
  std::atomic<Position> hidden_below_{0};  // pages on the disk that were set before
  std::mutex mutex_;                       // see above; taken before the pool's and the tier's
  bool ended_ = false;
  std::unique_ptr<ColdTier> tier_;
};

}  // namespace peercached
