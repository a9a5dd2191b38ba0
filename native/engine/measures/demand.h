// Counts the keys that workers looked for, and where they were: the value of the cache. Results of
// `get` do not show it. Engines ask `exists` first, and then get only keys that it found.
//
// A worker looks for a key when it asks `exists` for it. A worker that never calls `exists` looks
// for a key when it gets it.
#pragma once

#include <array>
#include <cstdint>

#include "common/counter.h"
#include "engine/measures/latencies.h"
#include "ipc/handler.h"

namespace peercached {

// We estimate the hit rate of these multiples of our pool's size (pool/evicted_keys.h).
inline constexpr std::array<unsigned, 2> kLargerPools = {2, 4};

// The keys that one request looked for.
struct Looked {
  uint64_t asked = 0;
  std::array<uint64_t, kSourceNames.size()> found{};  // by Source
  // Keys that a pool of kLargerPools[i] times our size would have added.
  std::array<uint64_t, kLargerPools.size()> evicted{};

  // A key that was not found. `pools_needed`: see pool/evicted_keys.h.
  void add_evicted(unsigned pools_needed) {
    for (size_t i = 0; i < kLargerPools.size(); ++i) {
      if (pools_needed != 0 && pools_needed <= kLargerPools[i]) ++evicted[i];
    }
  }
};

// Totals since start.
class Demand {
 public:
  void add(const Looked& looked, PageTokens page) {
    asked_.add(looked.asked);
    uint64_t found = 0;
    for (size_t i = 0; i < found_.size(); ++i) {
      found += looked.found[i];
      found_[i].add(looked.found[i]);
    }
    for (size_t i = 0; i < evicted_.size(); ++i) evicted_[i].add(looked.evicted[i]);
    tokens_asked_.add(page.tokens_of(looked.asked));
    tokens_found_.add(page.tokens_of(found));
  }

  uint64_t asked() const { return asked_.load(); }
  uint64_t found(size_t source) const { return found_[source].load(); }
  uint64_t evicted(size_t size) const { return evicted_[size].load(); }
  uint64_t tokens_asked() const { return tokens_asked_.load(); }
  uint64_t tokens_found() const { return tokens_found_.load(); }

 private:
  Counter asked_, tokens_asked_, tokens_found_;
  std::array<Counter, kSourceNames.size()> found_;
  std::array<Counter, kLargerPools.size()> evicted_;
};

}  // namespace peercached
