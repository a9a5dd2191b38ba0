// Checks that this host has enough memory before the pool takes it. A pool that is too large then
// fails at start with a clear message, not later with SIGBUS.
#pragma once

#include <cstdint>
#include <string>

namespace peercached {

inline constexpr uint64_t kMemoryPageBytes = 4096;
inline constexpr uint64_t kPoolBytesMin = 1 << 20;

std::string described(uint64_t bytes);  // "1048576 bytes (1 MiB)"
std::string last_error();               // errno in words

uint64_t huge_page_bytes();  // of the default huge page size

// All throw std::runtime_error with the values and the remedy. `pool_bytes` is the configured
// pool_size. `more_bytes` is the part of it that is not allocated yet.
void check_pool_size(uint64_t pool_bytes, uint64_t page_bytes);
void check_available(uint64_t pool_bytes, uint64_t more_bytes);
// Checks for free huge pages of the default size.
void check_huge_pages(uint64_t pool_bytes, uint64_t page_bytes);

}  // namespace peercached
