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
#include "common/round_up.h"
#include "pool/memory_limits.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack the name
#endif

namespace peercached {

namespace {

constexpr uint64_t kTouchPieceBytes = 16 << 20;
constexpr unsigned kTouchThreadsMax = 16;
// A part that is touched at a time: as large as a chunk that RDMA registers (rdma/memory.h).
constexpr uint64_t kPartBytesMin = 64 << 20;
constexpr uint64_t kPartsAbout = 256;

unsigned touch_threads() {
  return std::clamp(std::thread::hardware_concurrency(), 1U, kTouchThreadsMax);
}

}  // namespace

PoolMemory::PoolMemory(uint64_t size_bytes, bool huge_pages, uint64_t first_bytes)
    : threads_(touch_threads()) {
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
    map(huge_pages);
    touch_first(first_bytes);
  } catch (...) {
    release();
    throw;
  }
}

PoolMemory::PoolMemory(std::unique_ptr<PoolFile> file, uint64_t first_bytes)
    : threads_(touch_threads()),
      file_(std::move(file)),
      mapped_bytes_(file_->file_bytes()),
      size_bytes_(file_->pool_bytes()),
      fd_(file_->fd()) {
  try {
    map(file_->huge());
    touch_first(file_->kept() ? size_bytes_ : first_bytes);
    touch(size_bytes_, mapped_bytes_);  // the list of spans in the file
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

void PoolMemory::map(bool huge_pages) {
  step_bytes_ = round_up(std::max(size_bytes_ / kPartsAbout, kPartBytesMin),
                         huge_pages ? huge_page_bytes() : kPartBytesMin);
  void* mapped = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED)
    throw std::runtime_error("cannot map pool_size = " + described(mapped_bytes_) + ": " +
                             last_error() + ": lower pool_size" +
                             (huge_pages ? ", or reserve more huge pages" : ""));
  base_ = static_cast<std::byte*>(mapped);
  // Huge pages for shared memory save TLB misses during the copy. Where the system forbids them,
  // this call has no effect.
  if (!huge_pages) madvise(base_, mapped_bytes_, MADV_HUGEPAGE);
}

void PoolMemory::touch_first(uint64_t bytes) {
  const uint64_t to = std::min(size_bytes_, round_up(std::min(bytes, size_bytes_), step_bytes_));
  touch(ready_bytes_, to);
  ready_bytes_ = to;
}

void PoolMemory::touch_more() { touch_first(ready_bytes_ + 1); }

void PoolMemory::touch(uint64_t from, uint64_t to) {
  std::atomic<uint64_t> next{from};
  std::atomic<int> failure{0};
  const auto populate = [&] {
    for (;;) {
      const uint64_t at = next.fetch_add(kTouchPieceBytes);
      if (at >= to || failure != 0) return;
      const uint64_t bytes = std::min(kTouchPieceBytes, to - at);
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
    for (unsigned i = 1; i < threads_ && from + i * kTouchPieceBytes < to; ++i)
      workers.emplace_back(populate);
    populate();
  }
  if (failure != 0)
    throw std::runtime_error("the memory for pool_size = " + described(mapped_bytes_) +
                             " could not be had: " + error_text(failure) +
                             ": lower pool_size or free memory");
}

}  // namespace peercached
