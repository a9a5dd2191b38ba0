#include "pool/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/error_text.h"
#include "pool/memory_limits.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack the name
#endif

namespace peercached {

namespace {

constexpr uint64_t kTouchPieceBytes = 16 << 20;
constexpr unsigned kTouchThreadsMax = 16;

unsigned touch_threads() {
  return std::clamp(std::thread::hardware_concurrency(), 1U, kTouchThreadsMax);
}

}  // namespace

PoolMemory::PoolMemory(uint64_t size_bytes, bool huge_pages) : threads_(touch_threads()) {
  const uint64_t page_bytes = huge_pages ? huge_page_bytes() : kMemoryPageBytes;
  check_pool_size(size_bytes, page_bytes);
  mapped_bytes_ = size_bytes_ = size_bytes / page_bytes * page_bytes;
  if (huge_pages)
    check_huge_pages(size_bytes_, page_bytes);
  else
    check_available(size_bytes_, size_bytes_);

  try {
    fd_ = memfd_create("peercached-pool", MFD_CLOEXEC | (huge_pages ? MFD_HUGETLB : 0U));
    if (fd_ < 0) throw std::runtime_error("cannot create the pool's memory: " + last_error());
    if (ftruncate(fd_, static_cast<off_t>(size_bytes_)) != 0)
      throw std::runtime_error("cannot size the pool's memory to pool_size = " +
                               described(size_bytes_) + ": " + last_error());
    map_and_touch(huge_pages);
  } catch (...) {
    release();
    throw;
  }
}

PoolMemory::PoolMemory(std::unique_ptr<PoolFile> file)
    : threads_(touch_threads()),
      file_(std::move(file)),
      mapped_bytes_(file_->file_bytes()),
      size_bytes_(file_->pool_bytes()),
      fd_(file_->fd()) {
  try {
    map_and_touch(file_->huge());
  } catch (...) {
    release();
    throw;
  }
}

PoolMemory::~PoolMemory() { release(); }

void PoolMemory::release() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
  if (fd_ >= 0 && !file_) close(fd_);
}

void PoolMemory::map_and_touch(bool huge_pages) {
  void* mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED)
    throw std::runtime_error("cannot map pool_size = " + described(mapped_bytes_) + ": " +
                             last_error() + ": lower pool_size" +
                             (huge_pages ? ", or reserve more huge pages" : ""));
  base_ = static_cast<std::byte*>(mapped);
  touch(huge_pages);
}

void PoolMemory::touch(bool huge_pages) {
  // Huge pages for shared memory save TLB misses during the copy. Where the system forbids them,
  // this call has no effect.
  if (!huge_pages) madvise(base_, mapped_bytes_, MADV_HUGEPAGE);

  std::atomic<uint64_t> next{0};
  std::atomic<int> failure{0};
  const auto populate = [&] {
    for (;;) {
      const uint64_t at = next.fetch_add(kTouchPieceBytes);
      if (at >= mapped_bytes_ || failure != 0) return;
      const uint64_t bytes = std::min(kTouchPieceBytes, mapped_bytes_ - at);
      if (madvise(base_ + at, bytes, MADV_POPULATE_WRITE) == 0) continue;
      if (errno != EINVAL) {
        failure = errno;
        return;
      }
      // Kernels before 5.14 lack it: write back each page's own content.
      for (uint64_t page = at; page < at + bytes; page += kMemoryPageBytes) {
        auto* first = reinterpret_cast<volatile char*>(base_ + page);
        *first = *first;
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < threads_ && i * kTouchPieceBytes < mapped_bytes_; ++i)
      workers.emplace_back(populate);
    populate();
  }
  if (failure != 0)
    throw std::runtime_error("the memory for pool_size = " + described(mapped_bytes_) +
                             " could not be had: " + error_text(failure) +
                             ": lower pool_size or free memory");
}

}  // namespace peercached
