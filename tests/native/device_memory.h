// A memfd that plays memory of a device (device/stand_in.h).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include "device/stand_in.h"

namespace peercached {

class DeviceMemory {
 public:
  explicit DeviceMemory(uint64_t bytes, uint8_t device = 1)
      : file_(::memfd_create("device", MFD_CLOEXEC | MFD_ALLOW_SEALING)), bytes_(bytes) {
    const auto all = static_cast<off_t>(bytes + device::kStandInPageBytes);
    if (::ftruncate(file_, all) != 0) std::abort();
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, static_cast<size_t>(all), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    device_[0] = device;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    ::munmap(base_, bytes_ + device::kStandInPageBytes);
    ::close(file_);
  }

  device::Handle handle() const { return {device::Kind::stand_in, bytes_, device_, {}, file_}; }
  std::span<std::byte> bytes() { return {base_, bytes_}; }
  device::StandInFaults& faults() {
    return *reinterpret_cast<device::StandInFaults*>(base_ + bytes_);
  }
  void fill(uint8_t seed) {
    for (uint64_t i = 0; i < bytes_; ++i) base_[i] = static_cast<std::byte>(i * 7 + i / 251 + seed);
  }

 private:
  int file_;
  uint64_t bytes_;
  std::byte* base_;
  device::DeviceId device_{};
};

}  // namespace peercached
