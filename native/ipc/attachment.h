// One worker process as the daemon sees it: its namespace and its regions.
//
// Its connections hold it; when the last one ends, its regions are unmapped. A request holds the
// regions it uses. So neither UNREGISTER nor the worker's end unmaps memory during a copy.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "ipc/handler.h"
#include "ipc/request.h"
#include "ipc/shared_memory.h"

namespace peercached::ipc {

struct Region {
  // Throws RequestError if it is not shared memory, or not usable by the handler.
  Region(uint32_t id, const UniqueFd& fd, uint64_t bytes, RequestHandler& handler);
  // The same for memory of a device.
  Region(uint32_t id, const UniqueFd& fd, const RegisterDevice& told, RequestHandler& handler);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const uint32_t id;
  const FileIdentity identity;
  const uint64_t bytes;
  const std::unique_ptr<SharedMemory> memory;  // null: `of_device` is not
  const std::shared_ptr<device::Memory> of_device;
  std::atomic<bool> lost{false};
  std::atomic<bool> mapped_ahead{false};  // as a whole, or at its first use (map_ahead.h)

  // Of this host, which a worker may share only so much of.
  uint64_t host_bytes() const { return memory ? bytes : 0; }

 private:
  RequestHandler& handler_;
};

struct RegionLimits {
  unsigned regions_max = 0;
  uint64_t bytes_max = 0;
};

// The constant part of an attachment.
struct Attached {
  const uint64_t id;
  const Token token;
  const uint32_t pid, uid;
  const std::string name, ns_name;
  const std::shared_ptr<Namespace> ns;
};

class Attachment : public Attached {
 public:
  Attachment(Attached who, RegionLimits limits) : Attached(std::move(who)), limits_(limits) {}

  std::atomic<uint32_t> connections{0};
  std::atomic<uint64_t> requests{0};
  std::atomic<TimePoint> last_request{Clock::now()};  // or when it attached
  std::atomic<uint64_t> given_up{0};     // requests that the worker stopped waiting for
  std::atomic<bool> asks_exists{false};  // it has called exists
  // `pid` once it has shared memory of a device, if this process can see it; else 0.
  std::atomic<uint32_t> visible_pid{0};

  // Registering the same file again returns the same region, unless a larger size is asked for.
  // Throws RequestError. `next_id` is the server's: ids are never reused, so one attachment's id is
  // invalid in another.
  std::shared_ptr<Region> add_region(const UniqueFd& fd, uint64_t bytes,
                                     std::atomic<uint32_t>& next_id, RequestHandler& handler);
  std::shared_ptr<Region> add_device(const UniqueFd& fd, const RegisterDevice& told,
                                     std::atomic<uint32_t>& next_id, RequestHandler& handler);
  // nullopt: there is none. Null: it is lost.
  std::optional<std::shared_ptr<Region>> remove_region(uint32_t region);
  // True the first time. The id stays known, so that later uses get status region_lost.
  bool lose_region(uint32_t region);

  // Registers a connection's gate for as long as the connection lasts.
  void add_gate(std::shared_ptr<const GatePage> gate);
  void remove_gate(const std::shared_ptr<const GatePage>& gate);
  // Counts connections that the worker has given up while the daemon still accesses its memory.
  uint32_t stuck() const;

  // Fills `pages` from the columns: keys, memory, and statuses already decided. `regions` is
  // cleared first, then keeps the used regions alive. `layouts` become those of the request, if it
  // has some.
  void resolve(const PageColumns& columns, std::vector<PageRef>& pages,
               std::vector<std::shared_ptr<Region>>& regions,
               std::vector<DeviceLayout>& layouts) const;

  struct Regions {
    uint32_t count = 0;
    uint64_t bytes = 0;
  };
  Regions regions() const;

 private:
  void resolve_regions(const PageColumns& columns, std::vector<PageRef>& pages,
                       std::vector<std::shared_ptr<Region>>& regions) const;
  void resolve_layouts(const PageColumns& columns, std::vector<PageRef>& pages,
                       std::vector<std::shared_ptr<Region>>& regions,
                       std::vector<DeviceLayout>& layouts) const;
  // The memory of all Rows. Any other status than `pending` is that of all pages.
  PageStatus resolve_rows(const PageColumns& columns, std::vector<std::shared_ptr<Region>>& regions,
                          std::vector<DeviceLayout>& layouts) const;
  // The region of that file, or null if it may be added. Throws RequestError.
  std::shared_ptr<Region> known_region(const FileIdentity& identity, uint64_t bytes,
                                       uint64_t host_bytes) const REQUIRES(mutex_);
  // Without the mutex, `make` makes the region that is not known yet.
  template <typename Make>
  std::shared_ptr<Region> add(const FileIdentity& identity, uint64_t bytes, uint64_t host_bytes,
                              const Make& make);

  const RegionLimits limits_;
  mutable Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Region>> regions_ GUARDED_BY(mutex_);  // null: lost
  std::vector<std::shared_ptr<const GatePage>> gates_ GUARDED_BY(mutex_);
};

}  // namespace peercached::ipc
