// Memory of devices (GPUs) that workers share with this daemon, and copies between it and memory of
// the host.
//
//   worker: exports an allocation ──Handle──▶ Devices::import ──▶ Memory, kept by a region
//   set/get: Pieces ──▶ Devices::start ──▶ Copies, which ends when no byte moves any more
//
// A kind of device is one implementation of Devices: cuda.h, and stand_in.h for tests.
//
// Copies of a page come in pieces, because the memory of an engine is ordered by layer: one page
// has one piece per layer, for K and for V. A piece may have rows with gaps between them, on both
// sides.
//
// A call that a device refuses fails alone. Other errors are sticky: the device is lost, with all
// memory that was imported from it, and later copies there fail at once. Other devices and the
// host's memory are not affected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"

namespace peercached::device {

enum class Kind : uint32_t {
  stand_in = 1,    // the passed file is a memfd that plays the device
  cuda_ipc = 2,    // opaque: a handle of CUDA IPC, for memory of cudaMalloc
  cuda_posix = 3,  // the passed file is an allocation of CUDA's virtual memory management
};

using DeviceId = std::array<uint8_t, 16>;  // a UUID

// How a worker names an allocation.
struct Handle {
  Kind kind{};
  uint64_t bytes = 0;
  DeviceId device{};
  std::array<uint8_t, 64> opaque{};
  int file = -1;  // only for the time of the call
};

// One imported allocation. The last reference gives it back.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual uint64_t bytes() const = 0;
  virtual const DeviceId& device() const = 0;
};

// `rows` rows of `row_bytes`, at distances of `*_pitch` on each side. The caller has checked that
// they are inside of the memory, and that the rows do not overlap.
struct Piece {
  const Memory* memory = nullptr;
  uint64_t at = 0;            // of the first row in `memory`
  std::byte* host = nullptr;  // of the first row
  uint32_t row_bytes = 0, rows = 0;
  uint64_t device_pitch = 0, host_pitch = 0;
};

enum class Direction : uint8_t { to_device, to_host };
enum class Outcome : uint8_t {
  running,
  done,
  failed,  // some bytes may be missing
  lost,    // the same, and the device is lost
};

// Copies under way. A copy cannot be stopped, so the destructor waits until no byte moves any more.
class Copies {
 public:
  virtual ~Copies() = default;
  // Waits at most until then. After any other outcome than `running` no byte moves any more.
  virtual Outcome wait_until(TimePoint until) noexcept = 0;
};

struct DeviceState {
  DeviceId id{};
  std::string name;
  unsigned allocations = 0;
  uint64_t imported_bytes = 0;
  uint64_t copied_bytes = 0;  // both directions
  std::string why_lost;       // empty: it works
  std::string why_slow;       // empty: host memory is pinned, or no copy needed it yet
};

// Thread safe.
class Devices {
 public:
  virtual ~Devices() = default;
  virtual const char* name() const = 0;
  // Throws std::runtime_error with a sentence for the operator.
  virtual std::shared_ptr<Memory> import(const Handle& handle) = 0;
  // Host memory that copies will use from now on. It may be pinned, which makes copies quicker.
  virtual void host_mapped(std::byte* base, uint64_t bytes) = 0;
  virtual void host_unmapped(std::byte* base) noexcept = 0;
  // All pieces are of memory of one device. The host's memory must stay until the copies end.
  // Throws std::runtime_error if nothing was begun. On a lost device the copies end as `lost`.
  virtual std::unique_ptr<Copies> start(Direction direction, std::span<const Piece> pieces) = 0;
  virtual std::vector<DeviceState> states() const = 0;
};

}  // namespace peercached::device
