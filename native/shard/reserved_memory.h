// Address space for the most that a table can ever need; memory only for what it uses.
#pragma once

#include <cstddef>

namespace peercached {

inline constexpr size_t kPageBytes = 4096;

class ReservedMemory {
 public:
  // Throws std::runtime_error when the machine refuses. `what` is for that message.
  ReservedMemory(size_t bytes, const char* what);
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }

  // Zeroed memory behind whole pages, all at once: cheaper than a fault for each page.
  static void commit(void* start, size_t bytes);
  // Gives whole pages back; they read as zeros.
  static void release(void* start, size_t bytes);

 private:
  std::byte* base_;
  size_t bytes_;
};

}  // namespace peercached
