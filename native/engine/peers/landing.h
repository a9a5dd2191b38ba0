// Our own memory that receives pages of peers. It is registered with the devices like a worker's
// region, because RDMA may only read the pool. Nobody fences it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "common/write_gate.h"
#include "engine/peers/transports.h"

namespace peercached {

class Landing {
 public:
  Landing(Transports& transports, uint64_t bytes) : transports_(transports), bytes_(bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(mapped);
    try {
      transports_.region_mapped(base_, bytes_);
    } catch (...) {
      munmap(base_, bytes_);
      throw;
    }
  }
  ~Landing() {
    transports_.region_unmapped(base_);
    munmap(base_, bytes_);
  }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;
  std::byte* base() const { return base_; }
  WriteGate& gate() { return gate_; }

 private:
  Transports& transports_;
  const uint64_t bytes_;
  std::byte* base_ = nullptr;
  WriteGatePage gate_page_{};
  WriteGate gate_{&gate_page_};
};

}  // namespace peercached
