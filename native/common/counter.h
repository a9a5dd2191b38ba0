// A counter that any thread may add to. Its copy is the number at that time, so a copy of a struct
// of counters is a snapshot.
#pragma once

#include <atomic>
#include <cstdint>

namespace peercached {

struct Counter : std::atomic<uint64_t> {
  Counter() : atomic(0) {}
  Counter(const Counter& other) : atomic(other.load()) {}
  Counter& operator=(const Counter&) = delete;
  void add(uint64_t count = 1) { fetch_add(count, std::memory_order_relaxed); }
};

}  // namespace peercached
