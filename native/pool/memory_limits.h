// What memory this host can give, asked before it is taken: a pool that is too large is a sentence
// at start, not a SIGBUS later.
#pragma once

#include <cstdint>
#include <string>

namespace peercached {

inline constexpr uint64_t kMemoryPageBytes = 4096;
inline constexpr uint64_t kPoolBytesMin = 1 << 20;

std::string described(uint64_t bytes);  // "1048576 bytes (1 MiB)"
std::string last_error();               // errno in words

uint64_t huge_page_bytes();  // of the default kind

// All throw std::runtime_error with the values and the remedy. `pool_bytes` is what pool_size asks
// for, `more_bytes` what of it is not allocated yet.
void check_pool_size(uint64_t pool_bytes, uint64_t page_bytes);
void check_available(uint64_t pool_bytes, uint64_t more_bytes);
// Free huge pages of the default kind.
void check_huge_pages(uint64_t pool_bytes, uint64_t page_bytes);

}  // namespace peercached
