// Where each page is on the disk: 64 bytes per page in flat tables, or 75 to 115 with spare room.
//
// 256 shards, each an open-addressed table with its own mutex, so that growing one blocks others
// only briefly. A mutex is held for one entry, or for one shard during a scan. Only the namespace
// table is called under it. Never call the log under it: the log holds its own mutex while it calls
// the index, so that would deadlock.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/mutex.h"
#include "disk/disk_tier.h"
#include "disk/namespace_numbers.h"

namespace peercached::disk {

struct IndexEntry {
  Digest digest;
  uint64_t sequence = 0;  // of its record; 0: an empty place of the table
  uint64_t checksum = 0;
  Position set_at = 0;
  uint32_t namespace_number = 0;
  uint32_t length = 0;   // 0: a removal, during recovery only
  uint32_t segment = 0;  // number; 0: queued, not on disk yet
  uint32_t unit = 0;     // the payload's place in the segment, in kUnitBytes
  uint32_t touched = 0;  // number of the head segment at its last use, or 0
  uint32_t born : 24 = 0;
  uint32_t uses : 8 = 0;  // DiskTier::set_uses(); forgotten at a restart

  bool on_disk() const { return segment != 0; }
};
static_assert(sizeof(IndexEntry) == 64);

// Where a page's record is; see IndexEntry.
struct RecordPlace {
  uint64_t sequence = 0;
  uint32_t segment = 0;
  uint32_t unit = 0;
};

// A copy of an entry, and its page with the full namespace.
struct IndexedPage {
  IndexEntry entry;
  DiskPage page;
};

class Index {
 public:
  enum class Verdict : uint8_t { keep, erase };

  explicit Index(NamespaceNumbers& namespaces);
  ~Index();

  // find() and next_pages() skip entries of dropped epochs; change() and scan() see them until they
  // are erased.
  std::optional<IndexedPage> find(const Digest& digest) const;

  // False, and no change, if the digest is there in a live epoch.
  bool insert(const DiskPage& page, const RecordPlace& record);
  // Inserts, or replaces an older record of this digest, or an equal one of an earlier segment.
  void merge_newest(const DiskPage& page, const RecordPlace& record);
  // Calls change(entry) under the shard's lock; it must not change digest or namespace. False if
  // the digest is not there.
  template <typename Change>
  bool change(const Digest& digest, Change&& change);
  // Calls visit(entry) for every entry, each shard under its lock. May visit a kept entry twice if
  // others are erased.
  template <typename Visit>
  void scan(Visit&& visit);
  // DiskTier::scan(). `at` is a shard's number, and below it the hash in the shard to go on at.
  // Places would not do: pages change theirs when others come or go.
  bool next_pages(uint64_t& at, std::vector<DiskPage>& pages) const;

  DiskPage page_of(const IndexEntry& entry) const;  // while its shard is locked
  bool live(const IndexEntry& entry) const { return namespaces_.live(entry.namespace_number); }

  struct Totals {
    uint64_t pages = 0, payload_bytes = 0, bytes = 0;  // pages includes queued ones
  };
  Totals totals() const;

  static constexpr unsigned kShards = 256;

 private:
  struct Shard {
    mutable Mutex mutex;
    std::vector<IndexEntry> table GUARDED_BY(mutex);
    size_t used GUARDED_BY(mutex) = 0;
    uint64_t payload_bytes GUARDED_BY(mutex) = 0;

    // The entry's place, or the empty place for it. The table must not be empty.
    IndexEntry* place_of(const Digest& digest) REQUIRES(mutex);
    void grow() REQUIRES(mutex);
    void erase(IndexEntry* entry) REQUIRES(mutex);
  };
  static uint64_t hash_of(const Digest& digest) { return table_hash(digest) >> 32; }
  static size_t home_of(uint64_t hash, size_t places) {
    return static_cast<size_t>(hash * places >> 32);
  }
  Shard& shard_of(const Digest& digest) const { return shards_[digest.hi % kShards]; }
  void add(Shard& shard, const DiskPage& page, const RecordPlace& record) REQUIRES(shard.mutex);
  void erase(Shard& shard, IndexEntry* entry) REQUIRES(shard.mutex);

  NamespaceNumbers& namespaces_;
  std::unique_ptr<Shard[]> shards_;
};

template <typename Change>
bool Index::change(const Digest& digest, Change&& change) {
  Shard& shard = shard_of(digest);
  MutexLock lock(shard.mutex);
  if (shard.used == 0) return false;
  IndexEntry* entry = shard.place_of(digest);
  if (entry->sequence == 0) return false;
  if (change(*entry) == Verdict::erase) erase(shard, entry);
  return true;
}

template <typename Visit>
void Index::scan(Visit&& visit) {
  for (unsigned s = 0; s < kShards; ++s) {
    Shard& shard = shards_[s];
    MutexLock lock(shard.mutex);
    for (size_t i = 0; i < shard.table.size();) {
      IndexEntry& entry = shard.table[i];
      if (entry.sequence != 0 && visit(entry) == Verdict::erase) {
        erase(shard, &entry);  // a later entry may have moved here: look again
      } else {
        ++i;
      }
    }
  }
}

}  // namespace peercached::disk
