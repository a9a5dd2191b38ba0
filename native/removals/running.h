// Removals that the cluster is not done with, as this node has been told of them.
//
// From the moment at which this node has dropped a page until every process that may have another
// copy has dropped it, too, nothing of that key may come into the pool here:
//
//   a set is refused (`removing`), or an older copy elsewhere could be a hit behind it;
//   a page that is taken over from a peer was READ before its removal there, perhaps: it is doomed,
//   also when the removal is over before the copy is committed.
//
// Both ask one counter while nothing is removed. Thread safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/types.h"

namespace peercached {

class Running {
 public:
  // One removal of each digest begins; false, and none does, beyond `kDigestsMax`.
  bool begin(std::span<const Digest> digests);
  // One removal of each is over. Those of which none runs are ignored.
  void end(std::span<const Digest> digests);

  bool any() const { return running_.load(std::memory_order_seq_cst) != 0; }
  bool has(const Digest& digest) const;
  size_t digests() const { return running_.load(std::memory_order_relaxed); }
  // Grows with each begin() and end(): what was learnt before may be of a removed page.
  uint64_t changes() const { return changes_.load(std::memory_order_seq_cst); }

  // Copies on their way here from somewhere else, from before they are READ until they are
  // committed or given up.
  class Taking {
   public:
    Taking(Running& running, std::span<const Digest> digests);
    ~Taking();
    Taking(const Taking&) = delete;
    Taking& operator=(const Taking&) = delete;

    // Whether it was or is being removed since.
    bool doomed(const Digest& digest) const;

   private:
    Running& running_;
    const std::vector<Digest> digests_;
  };

  static constexpr size_t kDigestsMax = 1 << 16;

 private:
  struct Taken {
    unsigned takers = 0;
    bool doomed = false;  // for all of them: rare enough
  };

  mutable std::mutex mutex_;
  std::unordered_map<Digest, unsigned, DigestHash> removals_;
  std::unordered_map<Digest, Taken, DigestHash> taken_;
  std::atomic<size_t> running_{0};
  std::atomic<uint64_t> changes_{0};
};

}  // namespace peercached
