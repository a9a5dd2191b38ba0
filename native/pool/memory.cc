#include "pool/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack the name
#endif

namespace peercached {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kSizeBytesMin = 1 << 20;
constexpr uint64_t kPrefaultPieceBytes = 16 << 20;
constexpr unsigned kPrefaultThreadsMax = 16;

// A line "name:   123 kB" or "name:   123" of /proc/meminfo.
std::optional<uint64_t> meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) {
      const uint64_t value = std::strtoull(line.c_str() + name.size() + 1, nullptr, 10);
      return line.ends_with(" kB") ? value * 1024 : value;
    }
  return std::nullopt;
}

std::string described(uint64_t bytes) {
  return std::to_string(bytes) + " bytes (" + std::to_string(bytes >> 20) + " MiB)";
}

std::string error_text() { return std::strerror(errno); }

void check_available(uint64_t bytes) {
  const auto available = meminfo("MemAvailable");
  if (available && bytes > *available)
    throw std::runtime_error("pool_size is " + described(bytes) + ", but only " +
                             described(*available) +
                             " of memory are available: lower pool_size or free memory");
}

void check_huge_pages(uint64_t bytes, uint64_t page_bytes) {
  const uint64_t need = bytes / page_bytes;
  const uint64_t free = meminfo("HugePages_Free").value_or(0);
  if (need > free)
    throw std::runtime_error(
        "pool_size is " + described(bytes) + ": with huge_pages that takes " +
        std::to_string(need) + " huge pages, but only " + std::to_string(free) +
        " are free: raise vm.nr_hugepages, lower pool_size, or turn huge_pages off");
}

}  // namespace

PoolMemory::PoolMemory(uint64_t size_bytes, bool huge_pages, unsigned prefault_threads) {
  if (size_bytes < kSizeBytesMin)
    throw std::runtime_error("pool_size is " + described(size_bytes) +
                             ": it must be at least 1 MiB");
  uint64_t page_bytes = kPageBytes;
  if (huge_pages) page_bytes = meminfo("Hugepagesize").value_or(2 << 20);
  size_bytes_ = size_bytes / page_bytes * page_bytes;
  if (size_bytes_ == 0)
    throw std::runtime_error("pool_size is " + described(size_bytes) +
                             ", less than one huge page of " + described(page_bytes) +
                             ": raise pool_size or turn huge_pages off");
  if (huge_pages)
    check_huge_pages(size_bytes_, page_bytes);
  else
    check_available(size_bytes_);

  try {
    fd_ = memfd_create("peercached-pool", MFD_CLOEXEC | (huge_pages ? MFD_HUGETLB : 0U));
    if (fd_ < 0) throw std::runtime_error("cannot create the pool's memory: " + error_text());
    if (ftruncate(fd_, static_cast<off_t>(size_bytes_)) != 0)
      throw std::runtime_error("cannot size the pool's memory to pool_size = " +
                               described(size_bytes_) + ": " + error_text());
    void* mapped = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED)
      throw std::runtime_error("cannot map pool_size = " + described(size_bytes_) + ": " +
                               error_text() + ": lower pool_size");
    base_ = static_cast<std::byte*>(mapped);
    prefault(prefault_threads, huge_pages);
  } catch (...) {
    release();
    throw;
  }
}

PoolMemory::~PoolMemory() { release(); }

void PoolMemory::release() {
  if (base_ != nullptr) munmap(base_, size_bytes_);
  if (fd_ >= 0) close(fd_);
}

void PoolMemory::prefault(unsigned threads, bool huge_pages) {
  // Where the system allows large pages for shared memory they save the copy's TLB misses;
  // where it does not, nothing is lost.
  if (!huge_pages) madvise(base_, size_bytes_, MADV_HUGEPAGE);

  std::atomic<uint64_t> next{0};
  std::atomic<int> failure{0};
  const auto populate = [&] {
    for (;;) {
      const uint64_t at = next.fetch_add(kPrefaultPieceBytes);
      if (at >= size_bytes_ || failure != 0) return;
      const uint64_t bytes = std::min(kPrefaultPieceBytes, size_bytes_ - at);
      if (madvise(base_ + at, bytes, MADV_POPULATE_WRITE) == 0) continue;
      if (errno != EINVAL) {
        failure = errno;
        return;
      }
      // A kernel before 5.14: touch each page. The memory is fresh, so nothing is overwritten.
      for (uint64_t page = at; page < at + bytes; page += kPageBytes)
        *reinterpret_cast<volatile char*>(base_ + page) = 0;
    }
  };

  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  threads = std::min(threads, kPrefaultThreadsMax);
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < threads && i * kPrefaultPieceBytes < size_bytes_; ++i)
      workers.emplace_back(populate);
    populate();
  }
  if (failure != 0)
    throw std::runtime_error("the memory for pool_size = " + described(size_bytes_) +
                             " could not be had: " + std::strerror(failure) +
                             ": lower pool_size or free memory");
}

}  // namespace peercached
