// What the IPC server asks of the engine: one call per request frame, on the connection's
// own thread, which may block until the deadline.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/trace.h"
#include "common/types.h"
#include "common/write_gate.h"

namespace peercached {

// One page of a request, resolved by the server against the attachment's regions.
struct PageRef {
  std::string_view key;
  std::byte* memory = nullptr;  // in the region's mapping; null: see status
  uint32_t length = 0;
  uint32_t region = 0;
  bool of_device = false;                   // memory of a GPU: only RDMA devices can write it
  PageStatus status = PageStatus::pending;  // already decided (bad_key, bad_region, ...) or pending
};

// A namespace as the engine knows it; lives as long as the daemon.
class Namespace;

// The daemon itself, or somebody who operates it.
inline constexpr uint32_t kNoUser = UINT32_MAX;

struct RequestContext {
  Namespace* ns = nullptr;
  uint32_t user = kNoUser;
  Deadline deadline;
  WriteGate* gate = nullptr;
  std::string_view parent_key;  // empty: none given
  uint32_t hold_ms = 0;         // exists: keep what is present for so long
  Trace* trace = nullptr;       // get: what it does is told here
};

struct ExistsAnswer {
  uint32_t prefix = 0;           // leading keys present
  std::vector<uint8_t> present;  // one per key, filled when asked for
};

class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  // Null when there are too many. Somebody has it open as long as the answer lives.
  virtual std::shared_ptr<Namespace> open_namespace(std::string_view name, uint32_t user) = 0;
  virtual void set(const RequestContext& context, std::span<PageRef> pages) = 0;
  virtual void get(const RequestContext& context, std::span<PageRef> pages) = 0;
  // `all`: look every key up (bitmap), not only as far as the first hole.
  virtual ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) = 0;
  // ok: was present. Returns what is to be said of those that are neither ok nor absent.
  virtual std::string remove(const RequestContext& context, std::span<PageRef> keys) = 0;
  // Empty string: cleared everywhere. Otherwise what could not be reached.
  virtual std::string clear(const RequestContext& context) = 0;
  virtual std::string stats_json(const RequestContext& context) = 0;
  // A worker's region is mapped here, before any request names it; or will be unmapped, after
  // the last one. Throws std::runtime_error for memory that cannot be used.
  virtual void region_mapped(std::byte* /*base*/, uint64_t /*bytes*/) {}
  // The same for a dma-buf at `fd`, whose addresses from `base` on nobody can touch.
  virtual void device_region_mapped(std::byte* /*base*/, uint64_t /*bytes*/, int /*fd*/) {
    throw std::runtime_error("memory of a device cannot be used here");
  }
  virtual void region_unmapped(std::byte* /*base*/) noexcept {}
};

}  // namespace peercached
