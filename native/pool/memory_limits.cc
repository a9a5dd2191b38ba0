#include "pool/memory_limits.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "common/error_text.h"

namespace peercached {

namespace {

// Parses a line "name:   123 kB" or "name:   123" of /proc/meminfo.
std::optional<uint64_t> meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) {
      const uint64_t value = std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
      return line.ends_with(" kB") ? value * 1024 : value;
    }
  return std::nullopt;
}

}  // namespace

std::string described(uint64_t bytes) {
  return std::to_string(bytes) + " bytes (" + std::to_string(bytes >> 20) + " MiB)";
}

std::string last_error() { return error_text(errno); }

uint64_t huge_page_bytes() { return meminfo("Hugepagesize").value_or(2 << 20); }

void check_pool_size(uint64_t pool_bytes, uint64_t page_bytes) {
  if (pool_bytes < kPoolBytesMin)
    throw std::runtime_error("pool_size is " + described(pool_bytes) +
                             ": it must be at least 1 MiB");
  if (pool_bytes < page_bytes)
    throw std::runtime_error("pool_size is " + described(pool_bytes) +
                             ", less than one huge page of " + described(page_bytes) +
                             ": raise pool_size or turn huge_pages off");
}

void check_available(uint64_t pool_bytes, uint64_t more_bytes) {
  const auto available = meminfo("MemAvailable");
  if (available && more_bytes > *available)
    throw std::runtime_error("pool_size is " + described(pool_bytes) + ", but only " +
                             described(*available) +
                             " of memory are available: lower pool_size or free memory");
}

void check_huge_pages(uint64_t pool_bytes, uint64_t page_bytes) {
  const uint64_t need = pool_bytes / page_bytes;
  const uint64_t free = meminfo("HugePages_Free").value_or(0);
  if (need > free)
    throw std::runtime_error(
        "pool_size is " + described(pool_bytes) + ": with huge_pages that takes " +
        std::to_string(need) + " huge pages, but only " + std::to_string(free) +
        " are free: raise vm.nr_hugepages, lower pool_size, or turn huge_pages off");
}

}  // namespace peercached
