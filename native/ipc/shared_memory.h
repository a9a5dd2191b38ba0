// Worker memory mapped here: its regions and its gate pages.
//
// Only memfds and files on tmpfs or hugetlbfs are accepted. With other files, a plain memory access
// could wait for a disk or a FUSE server. A dma-buf is device memory (a GPU's). It gets reserved
// addresses here, which identify pages and let RDMA devices write, but the processor cannot touch
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/write_gate.h"
#include "ipc/unique_fd.h"

namespace peercached::ipc {

struct FileIdentity {
  uint64_t device = 0, inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

class SharedMemory {
 public:
  // Maps the first `bytes` of the file, shared and writable, after trying to seal it against
  // shrinking. Throws RequestError(bad_value) naming the problem with the file.
  SharedMemory(const UniqueFd& fd, uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  const FileIdentity& identity() const { return identity_; }
  // Access cannot fault: sealed against shrinking, and made of ordinary pages.
  bool faultless() const { return faultless_; }
  // mincore() tells which pages the file has. Of files that we may not write by their mode it says
  // that it has all, and to touch the others would make them.
  bool tells_pages() const { return tells_pages_; }
  // A dma-buf: its addresses are reserved, not mapped.
  bool of_device() const { return of_device_; }

  static FileIdentity identity_of(const UniqueFd& fd);

 private:
  void reserve(const UniqueFd& fd);

  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0, mapped_bytes_ = 0;
  FileIdentity identity_;
  bool faultless_ = false;
  bool tells_pages_ = false;
  bool of_device_ = false;
};

// A client can fence one connection through this page. Threads access it outside `guarded`, so a
// file that cannot be sealed is refused here.
class GatePage {
 public:
  explicit GatePage(const UniqueFd& fd);
  WriteGate& gate() { return gate_; }
  const WriteGate& gate() const { return gate_; }

 private:
  SharedMemory memory_;
  WriteGate gate_;
};

}  // namespace peercached::ipc
