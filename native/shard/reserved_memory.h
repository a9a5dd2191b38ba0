// Address space for the largest possible table; memory only for the part in use.
#pragma once

#include <cstddef>

namespace peercached {

inline constexpr size_t kPageBytes = 4096;

class ReservedMemory {
 public:
  // Throws std::runtime_error if the system refuses. Its message names the purpose, `what`.
  ReservedMemory(size_t bytes, const char* what);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // Faults in zeroed memory for whole pages at once, which is cheaper than one fault per page.
  static void commit(void* start, size_t bytes);
  // Returns whole pages to the system; they then read as zeros.
  static void release(void* start, size_t bytes);

 private:
  std::byte* base_;
  size_t bytes_;
};

}  // namespace peercached
