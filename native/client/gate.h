// The client's side of common/write_gate.h: revokes the daemon's access to our memory.
#pragma once

#include <sys/mman.h>

#include <atomic>

#include "client/descriptor.h"
#include "common/write_gate.h"

namespace peercached::client {

class Gate {
 public:
  // Throws std::system_error.
  Gate() : file_(::memfd_create("peercache-gate", MFD_CLOEXEC | MFD_ALLOW_SEALING), "a gate page") {
    void* at = MAP_FAILED;
    if (::ftruncate(file_.get(), kGatePageBytes) == 0) {
      at = ::mmap(nullptr, kGatePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    }
    if (at == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "a gate page");
    page_ = static_cast<WriteGatePage*>(at);
  }
  ~Gate() { ::munmap(page_, kGatePageBytes); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Passed to the daemon with HELLO, and closed then.
  int file() const { return file_.get(); }
  void close_file() { file_.close(); }

  void fence() { page_->fence.store(1, std::memory_order_seq_cst); }
  // After fence(): once this is true, the daemon does not touch our memory any more.
  bool silent() const { return page_->writers.load(std::memory_order_seq_cst) == 0; }

 private:
  Descriptor file_;
  WriteGatePage* page_ = nullptr;
};

}  // namespace peercached::client
