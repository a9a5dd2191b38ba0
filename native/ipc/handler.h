// The engine as the IPC server sees it: one call per request frame, on the connection's own thread.
// A call may block until the deadline.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/page_name.h"
#include "common/trace.h"
#include "common/types.h"
#include "common/write_gate.h"
#include "ipc/device_layout.h"
#include "ipc/wire.h"

namespace peercached {

// One page of a request, resolved by the server against the attachment's regions.
struct PageRef {
  std::string_view key;
  std::byte* memory = nullptr;  // in the region's mapping; null: see status
  uint32_t length = 0;
  uint32_t region = 0;
  bool of_device = false;                   // GPU memory: only RDMA devices can write it
  const DeviceLayout* layout = nullptr;     // GPU memory that we copy: `memory` is null, or ours
  uint64_t number = 0;                      // of the page in the layout
  PageStatus status = PageStatus::pending;  // or already decided: bad_key, bad_region, ...
};

// A namespace as the engine knows it; lives as long as the daemon.
class Namespace;

// User id of the daemon itself, or of an operator.
inline constexpr uint32_t kNoUser = UINT32_MAX;

// The content of an engine's page: so many tokens of a prompt, under so many keys.
struct PageTokens {
  uint16_t tokens = 0;  // 0: the worker did not say
  uint16_t keys = 1;
  uint64_t tokens_of(uint64_t count) const { return keys == 0 ? 0 : count / keys * tokens; }
};

// How long a pin lasts, and its pages.
struct PinWish {
  uint32_t for_ms = 0;  // 0: the pin ends now
  bool prefix = false;  // only the keys before the first one that is nowhere
  bool here = false;    // bring the pages to this node
};

// Of a get: all its pages have the Rows of the stages below that number.
using TellStages = std::function<void(uint32_t)>;

// How long an exists waits for how many leading keys.
struct ExistsWait {
  uint32_t ms = 0;  // 0: not at all
  uint32_t keys = 0;
  bool again = false;  // the keys were asked for before: see ipc::kWaitAgain
};

struct RequestContext {
  Namespace* ns = nullptr;
  uint32_t user = kNoUser;
  Deadline deadline;
  WriteGate* gate = nullptr;
  std::string_view parent_key;              // empty: none given
  uint32_t hold_ms = 0;                     // exists: how long to keep the pages present
  PinWish pin{};                            // pin: see PinWish
  PageTokens page{};                        // exists: see PageTokens
  ExistsWait wait{};                        // exists: see ExistsWait
  bool gets_only = false;                   // get: the worker has never called exists
  bool lengths = false;                     // exists: fill ExistsAnswer::lengths
  bool forecast = false;                    // exists: fill its p50_us, p90_us and cold
  ipc::ForecastNews news{};                 // exists: see ForecastNews
  bool here = false;                        // exists: see kFlagHere
  Trace* trace = nullptr;                   // get: records its steps here
  uint32_t pid = 0;                         // of the worker; 0: this process cannot see it
  const CallerSpan* caller = nullptr;       // get: the span that it is part of; null: not recorded
  const TellStages* tell_stages = nullptr;  // get: null: nobody wants to know
  GivenNames names{};                       // set: of its pages in events
  const std::function<bool()>* gone = nullptr;  // whether the worker has closed its connection
};

struct ExistsAnswer {
  uint32_t prefix = 0;              // leading keys present
  std::vector<uint8_t> present;     // one per key, filled if requested
  std::vector<uint32_t> lengths{};  // bytes of each key's page, 0 if it is not present
  // By key: the time to load the pages present up to it, together.
  std::vector<uint32_t> p50_us{}, p90_us{};
  std::vector<uint8_t> cold{};  // by key: 1 if only the object store has the page
};

struct HintAnswer {
  bool understood = false;
  std::string text;  // the outcomes as JSON; or why the envelope was refused
};

class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  // Null if there are too many. The namespace counts as open while the result lives.
  virtual std::shared_ptr<Namespace> open_namespace(std::string_view name, uint32_t user) = 0;
  virtual void set(const RequestContext& context, std::span<PageRef> pages) = 0;
  virtual void get(const RequestContext& context, std::span<PageRef> pages) = 0;
  // `all`: look up every key (bitmap), not only up to the first hole.
  virtual ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) = 0;
  // Status ok: was present. Returns a sentence about keys that are neither ok nor absent, or "".
  virtual std::string remove(const RequestContext& context, std::span<PageRef> keys) = 0;
  // Status ok: pinned now, or, with `for_ms` 0, it was pinned; no_space: beyond a bound. Returns a
  // sentence about keys that are neither ok nor absent, or "".
  virtual std::string pin(const RequestContext& context, std::span<PageRef> keys) = 0;
  // An envelope of hints (docs/routers.md). Its actions without keys are about these.
  virtual HintAnswer hint(const RequestContext& context, std::span<PageRef> keys,
                          std::string_view envelope) = 0;
  // Empty string: cleared everywhere. Otherwise says which peers could not be reached.
  virtual std::string clear(const RequestContext& context) = 0;
  virtual std::string stats_json(const RequestContext& context) = 0;
  // A worker says that its call took so long. It may lie.
  virtual void client_took(ipc::TookOp /*op*/, std::chrono::microseconds /*time*/) {}
  // region_mapped() comes before any request uses a worker's region, region_unmapped() after the
  // last one. Throws std::runtime_error for unusable memory.
  virtual void region_mapped(std::byte* /*base*/, uint64_t /*bytes*/) {}
  // The same for a dma-buf at `fd`. Its addresses from `base` on are only reserved: do not access.
  virtual void device_region_mapped(std::byte* /*base*/, uint64_t /*bytes*/, int /*fd*/) {
    throw std::runtime_error("memory of a device cannot be used here");
  }
  virtual void region_unmapped(std::byte* /*base*/) noexcept {}
  // Memory of a device, for layouts. Throws std::runtime_error if it cannot be used.
  virtual std::shared_ptr<device::Memory> import_device(const device::Handle& /*handle*/) {
    throw std::runtime_error("memory of a device cannot be used here");
  }
};

}  // namespace peercached
