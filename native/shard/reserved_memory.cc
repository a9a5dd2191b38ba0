#include "shard/reserved_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace peercached {

ReservedMemory::ReservedMemory(size_t bytes, const char* what) : bytes_(bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    throw std::runtime_error("cannot reserve " + std::to_string(bytes) +
                             " bytes of address space for " + what + " (" +
                             std::generic_category().message(errno) +
                             "): lower directory_capacity, or raise the address space limit "
                             "(ulimit -v, vm.overcommit_memory)");
  base_ = static_cast<std::byte*>(mapped);
}

ReservedMemory::~ReservedMemory() { munmap(base_, bytes_); }

void ReservedMemory::commit([[maybe_unused]] void* start, [[maybe_unused]] size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  // Fails before Linux 5.14; the pages are then faulted in one by one.
  madvise(start, bytes, MADV_POPULATE_WRITE);
#endif
}

void ReservedMemory::release(void* start, size_t bytes) { madvise(start, bytes, MADV_DONTNEED); }

}  // namespace peercached
