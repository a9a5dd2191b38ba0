// One `get` on its way through the places where its pages may be. Every page ends with one status.
// It stays pending for the next place if this one does not have it, or cannot give it in time.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine/paths/get_path.h"

namespace peercached {

struct GetPath::Run {
  // What all runs of one get share.
  struct Shared {
    std::atomic<uint64_t> landed_bytes{0};  // from any holder
    std::atomic<int> threads_left{16};      // for holders that are read apart
  };

  const Parts& parts;
  const RequestContext& context;
  Shared& shared;
  const Digest* parent;  // null: none given
  std::span<PageRef> pages;
  std::span<const Digest> digests;
  uint64_t epoch;                       // of the namespace
  uint64_t removals;                    // Running::changes() before anything was looked up
  std::vector<HolderIndex> failed;      // by page: the holder that failed to give it
  std::map<size_t, Generation> gone{};  // by page: its record, if it has left that holder's pool
  std::vector<uint8_t> unread{};        // by page: 1 if a disk has it but gave nothing; or empty
  Source farthest = Source::nowhere;    // of the places that gave a page
  Looked looked{};                      // found: the pages given, by place
  std::set<HolderIndex> crowded{};      // holders that many nodes read from now, it seems
  std::map<HolderIndex, uint64_t> slices{};  // bytes, of the holders that are read in slices

  void from_pool();   // get_path.cc
  void from_disk();   // get_path.cc
  void from_peers();  // get_peers.cc: at first by all that is known, then with a second lookup
  // The last step: a miss becomes an error if a disk has the page but gave nothing.
  void blame_disks();
  void count_demand();  // get_path.cc

 private:
  // A page of this request (its index) and its record.
  struct Found {
    size_t page;
    RecordRow row;
  };
  using ByHolder = std::map<HolderIndex, std::vector<Found>>;
  struct Asked;  // one holder, asked for some pages
  struct Apart;  // a run for one holder's pages, on a thread of its own

  // The second lookup, for pages that are worth it.
  void try_again(std::deque<Apart>& apart);
  // Pages worth another try stay pending.
  void look_up_and_read(Trust trust, std::deque<Apart>& apart);
  // Reads in as many turns as it takes.
  void take(ByHolder& resident, ByHolder& cold, Trust trust);
  // Takes out the holders that give their pages in several steps, so that nobody waits for them.
  void set_apart(ByHolder& resident, ByHolder& cold, Trust trust, std::deque<Apart>& apart);
  std::vector<Found> further_turn(std::span<const Found> left, Trust trust);
  // Reads found pages, but for those returned.
  std::vector<Found> read_turn(ByHolder& resident, ByHolder& cold, Trust trust);
  // Puts a page with its record where it belongs, or decides that it is missed.
  void sort_in(const Found& found, Trust trust, ByHolder& resident, ByHolder& cold);
  // How much is read from this holder in one turn, if there is so much of it.
  uint64_t slice(HolderIndex holder, uint64_t bytes);
  // The same. 0: all of it is read at once.
  uint64_t turn_bytes(HolderIndex holder, std::span<const Found> found);
  // Takes out of `resident` what is behind the first slice of each holder.
  ByHolder take_behind_slices(ByHolder& resident);
  // Copies our pinned pages into the region: pins[k] is the index[k]-th page.
  void copy_out(std::span<const PinnedPage> pins, std::span<const size_t> index, Source source);
  void hit(Source source);
  size_t count_ok(std::span<const size_t> index) const;
  void not_read(size_t page);  // a disk has it, but gave nothing
  // Reads `resident` pages. In turns, has `cold` pages promoted and reads them.
  void promote_and_read(const ByHolder& resident, ByHolder& cold, Trust trust);
  void ask(ByHolder& cold, std::deque<Asked>& asked);
  // Waits for the answer. Pages that cannot be promoted now are cold again. If none could, they are
  // misses, because more questions would not help.
  void take_answer(Asked& asked, Trust trust, ByHolder& promoted, ByHolder& cold);
  void read(const ByHolder& found, Trust trust, Source source);
  void keep_replicas(std::span<const ReadBatch> batches, std::span<const Found* const> of_op);
  // The record led nowhere. The page stays pending if another look is worthwhile.
  void missed(const Found& found, PageStatus status, Trust trust);
};

}  // namespace peercached
