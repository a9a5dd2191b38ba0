// The removals on this node, in order, for as long as an older copy may come back.
//
// A removed page leaves the pool and the disk at once. Copies can still come back: from a pool file
// or a disk folder after a kill -9, or from a folder that was switched off, moved, or restored from
// a backup. So every removal gets a position here before it is answered. A copy that outlives the
// process carries the position of the newest removal when it was set:
//
//   a copy that was set at position s is void if an entry of its digest has a position above s
//
// An entry is written when its page is gone from pool and disk. So a copy that carries position p
// was set after that removal, and is kept. A page that is set while it is being removed may be void
// at the next start, which is a miss.
//
// Each entry names its removal, because the same page may be removed many times: a node that is
// told of an entry of another journal knows by that whether its own has it.
//
//   state_dir/removals-NODE.log = | header, 4 KiB | entries, 40 bytes each ... |
//
// The file is append-only. An entry torn by a power cut ends it: it was not answered, or `sync` was
// off. When there are too many entries, the older half is forgotten and the floor rises. Copies set
// below the floor are void as well, because nobody knows any more whether they were removed.
//
// A journal has an id, a random number. A node that drops all its pages, because it does not know
// what was removed meanwhile, begins another one. Pool file and disk folder remember the id and
// the last position that they saw: TierNote. If they belong to another journal, or to a later state
// of this one (a state_dir from a backup), their copies are not served.
//
// Thread safe. Writing and reading the file may hang with state_dir. last(), note(), why_not() and
// stats() never wait for that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/identity.h"
#include "common/mutex.h"
#include "common/types.h"

namespace peercached {

struct JournalConfig {
  std::string path;          // "": nothing outlives the process, and nothing is written
  StoreIdentity identity{};  // the node and cluster of these removals
  uint64_t entries_max = 1u << 20;
  bool sync = false;  // sync() flushes entries to the medium, against power cuts
};

// Tells which copies are void, from the entries of the file.
class Past {
 public:
  // Whether a copy of this digest, set at that position, is void. A copy from beyond the last
  // position is, too, because it belongs to a later state of this journal.
  bool is_void(const Digest& digest, Position set_at) const;

 private:
  friend class Journal;
  std::unordered_map<Digest, Position, DigestHash> latest_;
  Position floor_ = 0, last_ = 0;
};

struct JournalStats {
  Position last = 0;
  Position floor = 0;
  uint64_t entries = 0;  // in the file
  uint64_t waiting = 0;  // not in the file yet
  std::string problem;   // why they wait; empty if none does
};

class Journal {
 public:
  // Reads the file and locks it. A file of another `identity` or version, or with a damaged header,
  // begins anew with another id. Throws std::runtime_error with the path and the remedy if
  // another daemon uses the file, or if it cannot be read or written.
  explicit Journal(const JournalConfig& config);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The position of the newest entry in the file. Pages set now carry it.
  Position last() const { return last_.load(std::memory_order_acquire); }
  // For tiers that are used with this journal; zero without a file.
  TierNote note() const { return id_ == 0 ? TierNote{} : TierNote{id_, last()}; }
  // Why the copies of a tier with this note must not be served; "" if they may, as far as Past
  // allows.
  std::string why_not(const TierNote& tier) const;

  // Appends an entry for each page. The pages must be gone from pool and disk. False: the entries
  // could not be written, so a restart may bring the pages back. The next append() or
  // write_waiting() writes them.
  bool append(std::span<const Removed> removed);
  bool write_waiting();
  // Flushes the entries appended so far to the medium, if `sync` is on. False: they may not be
  // there.
  bool sync();
  // Begins another journal. Its positions go on. All pages set so far are void after a restart, and
  // so is every tier from an earlier backup. False: as for append().
  bool forget();

  // Reads the file. Call at start, before any older copy is served.
  Past past() const;
  // The removed pages of the entries above `position`, in order. nullopt: some are forgotten, there
  // is no file, or it cannot be read.
  std::optional<std::vector<Removed>> since(Position position) const;
  // Those of the entries of another journal that this one lacks, once each and in order.
  std::vector<Removed> unknown(std::span<const Removed> removed) const;
  JournalStats stats() const;

 private:
  void open_and_lock() REQUIRES(mutex_);
  void begin() REQUIRES(mutex_);
  bool read_header() REQUIRES(mutex_);
  void read_entries() REQUIRES(mutex_);
  bool write_pending() REQUIRES(mutex_);
  int write_entries(int fd, std::span<const Removed> removed, uint64_t count) const
      REQUIRES(mutex_);
  int rewrite() REQUIRES(mutex_);
  int write_header(int fd, Position floor) const;
  void reserve_room() REQUIRES(mutex_);
  [[noreturn]] void fail(const std::string& what) const;

  const JournalConfig config_;
  std::atomic<uint64_t> id_{0};
  std::atomic<Position> last_{0};

  std::vector<Removed> pending() const;

  mutable Mutex mutex_;  // of the file; held during its reads and writes
  int fd_ GUARDED_BY(mutex_) = -1;
  // These two change under mutex_.
  std::atomic<Position> floor_{0};
  std::atomic<uint64_t> written_{0};  // entries in the file
  uint64_t reserved_bytes_ GUARDED_BY(mutex_) = 0;
  Mutex sync_mutex_;  // lock order: before mutex_
  std::atomic<Position> synced_{0};
  bool forgot_pending_ GUARDED_BY(mutex_) = false;  // more waited than can be kept
  mutable Mutex pending_mutex_;                     // lock order: after mutex_
  // The newest entries, not in the file yet. append() adds to them, all else needs mutex_, too.
  std::vector<Removed> pending_ GUARDED_BY(pending_mutex_);
  std::string problem_ GUARDED_BY(pending_mutex_);
};

}  // namespace peercached
