// Removals that are not complete in the cluster yet, as far as this node was told.
//
// A removal runs here from the moment this node has dropped the page. It ends when every process
// that may have a copy has dropped it, too. In between nothing of that key may enter this pool:
//
//   a set is refused (`removing`), or an older copy elsewhere could be a hit behind it;
//   a page taken over from a peer may have been READ before its removal there: it is doomed, even
//   if the removal ends before the copy is committed.
//
// While no removal runs, any() and has() read one counter. Thread safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"
#include "common/types.h"

namespace peercached {

class Running {
 public:
  // Begins one removal of each digest. False: beyond `kDigestsMax`, and none has begun.
  bool begin(std::span<const Digest> digests);
  // Ends one removal of each digest. A digest without one is ignored.
  void end(std::span<const Digest> digests);

  bool any() const { return running_.load(std::memory_order_seq_cst) != 0; }
  bool has(const Digest& digest) const;
  size_t digests() const { return running_.load(std::memory_order_relaxed); }
  // Grows with each begin() and end(). Anything learnt at a lower value may be of a removed page.
  uint64_t changes() const { return changes_.load(std::memory_order_seq_cst); }

  // Copies on their way here, from before they are READ until they are committed or given up.
  class Taking {
   public:
    Taking(Running& running, std::span<const Digest> digests);
    ~Taking();
    Taking(const Taking&) = delete;
    Taking& operator=(const Taking&) = delete;

    // Whether the page has been removed since, or is being removed.
    bool doomed(const Digest& digest) const;

   private:
    Running& running_;
    const std::vector<Digest> digests_;
  };

  // Of all drivers together. Each has room of its own (peercached/removals/ledger.py), and this is
  // that of 64.
  static constexpr size_t kDigestsMax = 1 << 22;

 private:
  struct Taken {
    unsigned takers = 0;
    bool doomed = false;  // for all takers: rare enough
  };

  mutable Mutex mutex_;
  std::unordered_map<Digest, unsigned, DigestHash> removals_ GUARDED_BY(mutex_);
  std::unordered_map<Digest, Taken, DigestHash> taken_ GUARDED_BY(mutex_);
  std::atomic<size_t> running_{0};
  std::atomic<uint64_t> changes_{0};
};

}  // namespace peercached
