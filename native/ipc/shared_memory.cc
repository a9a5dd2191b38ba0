#include "ipc/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/error_text.h"
#include "common/round_up.h"
#include "ipc/request.h"

namespace peercached::ipc {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw RequestError(ErrorCode::bad_value, text);
}

struct stat status_of(const UniqueFd& fd) {
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) refuse("fstat of the passed file: " + error_text(errno));
  return status;
}

constexpr uint64_t kDmaBufMagic = 0x444d4142;  // DMA_BUF_MAGIC; older headers lack it

bool seal_against_shrinking(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return false;  // a tmpfs file that is not a memfd
  if ((seals & F_SEAL_SHRINK) != 0) return true;
  return ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0;
}

}  // namespace

FileIdentity SharedMemory::identity_of(const UniqueFd& fd) {
  const struct stat status = status_of(fd);
  return {status.st_dev, status.st_ino};
}

SharedMemory::SharedMemory(const UniqueFd& fd, uint64_t bytes) : bytes_(bytes) {
  struct stat status = status_of(fd);
  struct statfs filesystem;
  if (::fstatfs(fd.get(), &filesystem) != 0) {
    refuse("fstatfs of the passed file: " + error_text(errno));
  }
  if (static_cast<uint64_t>(filesystem.f_type) == kDmaBufMagic) {
    reserve(fd);
    return;
  }
  const bool huge = filesystem.f_type == HUGETLBFS_MAGIC;
  if (!S_ISREG(status.st_mode) || (filesystem.f_type != TMPFS_MAGIC && !huge)) {
    refuse("the passed file is no shared memory: pass a memfd or a file on tmpfs or hugetlbfs");
  }
  // Seal first, then measure: otherwise the file could shrink in between.
  const bool sealed = seal_against_shrinking(fd.get());
  status = status_of(fd);
  identity_ = {status.st_dev, status.st_ino};
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  if (bytes == 0 || bytes > file_bytes) {
    refuse("a region of " + std::to_string(bytes) + " bytes in a file of " +
           std::to_string(file_bytes) + ": announce 1 byte up to the file's size");
  }
  // munmap rounds up for ordinary pages, but not for huge pages.
  const uint64_t granule = huge ? static_cast<uint64_t>(filesystem.f_bsize) : 1;
  mapped_bytes_ = round_up(bytes, granule);
  void* at = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    refuse("mapping " + std::to_string(bytes) + " bytes: " + error_text(errno) +
           "; the file must be open for reading and writing, and not sealed against writing");
  }
  // Keep workers' pages out of the daemon's core dump.
  ::madvise(at, mapped_bytes_, MADV_DONTDUMP);
  base_ = static_cast<std::byte*>(at);
  // A huge page can still be missing at its first touch.
  faultless_ = sealed && !huge;
  tells_pages_ = ::faccessat(fd.get(), "", W_OK, AT_EMPTY_PATH | AT_EACCESS) == 0;
}

void SharedMemory::reserve(const UniqueFd& fd) {
  identity_ = identity_of(fd);
  const off_t file_bytes = ::lseek(fd.get(), 0, SEEK_END);  // fstat says 0 for a dma-buf
  if (bytes_ == 0 || file_bytes < 0 || bytes_ > static_cast<uint64_t>(file_bytes)) {
    refuse("a region of " + std::to_string(bytes_) + " bytes in a dma-buf of " +
           std::to_string(file_bytes) + ": announce 1 byte up to its size");
  }
  mapped_bytes_ = bytes_;
  void* at =
      ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    refuse("reserving addresses for " + std::to_string(bytes_) + " bytes: " + error_text(errno));
  }
  base_ = static_cast<std::byte*>(at);
  of_device_ = true;
}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

GatePage::GatePage(const UniqueFd& fd)
    : memory_(fd, kGatePageBytes), gate_(reinterpret_cast<WriteGatePage*>(memory_.base())) {
  if (!memory_.faultless()) {
    refuse(
        "the gate page cannot be sealed against shrinking: "
        "create it with memfd_create(MFD_ALLOW_SEALING), without huge pages");
  }
}

}  // namespace peercached::ipc
