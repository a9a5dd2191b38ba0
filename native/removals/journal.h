// What was removed on this node, in order, for as long as an older copy of it may come back.
//
// A page that is removed leaves the pool and the disk at once. Copies can come back all the same:
// from a pool file or a disk folder after a kill -9, from a folder that was switched off, moved, or
// restored from a backup. So every removal gets a position here before it is answered. Whatever
// outlives the process carries the position of the newest removal at the time when it was set:
//
//   a copy that was set at position s is void if an entry of its digest has a position above s
//
// An entry is written when its page is gone from pool and disk. So a copy that carries position p
// was made after that removal, and has what was set after it. A page that is set while it is being
// removed may be void at the next start: a miss.
//
//   state_dir/removals-NODE.log = | header, 4 KiB | entries, 32 bytes each ... |
//
// The file is appended to. Entries that a power cut tore end it: they were not answered, or `sync`
// was off. When there are too many the older half is forgotten, and the floor rises: of copies that
// were set below it nobody knows any more whether they were removed, so they are void as well.
//
// A journal has a life, a random number. Pool file and disk folder remember whose positions they
// have seen, and how many: TierNote. So one that belongs to another journal, or to a later state
// of this one (a state_dir from a backup), is found out, and what it holds is not served.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/identity.h"
#include "common/types.h"

namespace peercached {

struct JournalConfig {
  std::string path;          // "": nothing outlives the process, and nothing is written
  StoreIdentity identity{};  // whose removals these are
  uint64_t entries_max = 1u << 20;
  bool sync = false;  // sync() brings entries to the medium: against power cuts
};

// Which copies are void, as read from the file.
class Past {
 public:
  // A copy of this digest, set at that position. One of a position that this journal has not had
  // comes from a later state of it.
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
  uint64_t waiting = 0;  // to be written
  std::string problem;   // why; empty if none waits
};

class Journal {
 public:
  // Reads what there is, and locks it. One that is another's (`identity`), of another version or
  // damaged in its header begins anew, with another life. Throws std::runtime_error with the path
  // and the remedy: used by another daemon, not to be read or written.
  explicit Journal(const JournalConfig& config);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Of the newest entry in the file. What is set now carries it.
  Position last() const { return last_.load(std::memory_order_acquire); }
  // For what is used with it; zero without a file.
  TierNote note() const { return life_ == 0 ? TierNote{} : TierNote{life_, last()}; }
  // Why the copies of a tier with this note must not be served; "" if they may, as far as Past
  // says.
  std::string why_not(const TierNote& tier) const;

  // One entry for each, of pages that are gone from pool and disk. False: they could not be
  // written, and a restart may bring them back; they are written with the next ones, or by
  // write_waiting().
  bool append(std::span<const Digest> digests);
  bool write_waiting();
  // What was appended so far is on the medium, if `sync` is on; false: it is not.
  bool sync();
  // Nothing that was set so far is served after a restart. False: as for append().
  bool forget();

  // Reads the file: at start, before anything that it held is served.
  Past past() const;
  // The digests of the entries with higher positions, in order; nullopt if they are not all here
  // any more, or there is no file, or it cannot be read.
  std::optional<std::vector<Digest>> since(Position position) const;
  JournalStats stats() const;

 private:
  void open_and_lock();
  void begin();
  bool read_header();
  void read_entries();
  // With mutex_ held:
  bool write_pending();
  int write_entries(int fd, std::span<const Digest> digests, uint64_t count) const;
  int rewrite();
  int write_header(int fd, Position floor) const;
  void reserve_room();
  [[noreturn]] void fail(const std::string& what) const;

  const JournalConfig config_;
  int fd_ = -1;
  uint64_t life_ = 0;
  std::atomic<Position> last_{0};

  mutable std::mutex mutex_;
  Position floor_ = 0;
  uint64_t written_ = 0;  // entries in the file
  uint64_t reserved_bytes_ = 0;
  std::mutex sync_mutex_;  // before mutex_
  std::atomic<Position> synced_{0};
  std::vector<Digest> pending_;  // the newest entries, not in the file yet
  bool forgot_pending_ = false;  // there were more than can be kept
  std::string problem_;
};

}  // namespace peercached
