// The data plane for operators: the document behind `status`, the metrics and a worker's `stats()`;
// latencies; and sentences for the log.
#pragma once

#include <string>
#include <vector>

#include "common/json.h"
#include "common/notices.h"
#include "device/device.h"
#include "directory/record_table.h"
#include "engine/control/config.h"
#include "engine/control/control_queue.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/paths/workers.h"
#include "engine/peers/readers.h"
#include "engine/peers/transports.h"
#include "engine/records/directory.h"
#include "engine/records/locations.h"
#include "engine/records/nodes.h"
#include "engine/storage/disk_watch.h"
#include "engine/storage/storage.h"

namespace peercached {

class OperatorView {
 public:
  struct Parts {
    const EngineConfig& config;
    Storage& storage;
    Transports& transports;
    const Directory& directory;
    const LocationCache& locations;
    const NodeTable& nodes;
    const Workers& workers;
    const Readers& readers;
    const ControlQueue& control;
    const OperationCounters& counters;
    const Latencies& latencies;
    const device::Devices* devices;  // null: gpu = "off"
    Notices& notices;
  };

  explicit OperatorView(const Parts& parts) : parts_(parts), disk_watch_(parts.config.disk.path) {}

  std::string status_json() const;
  // The same for a worker, with the daemon's name and the worker's namespace, but without the
  // others.
  std::string stats_json(const RequestContext& context) const;
  std::vector<NamedLatency> latencies() const;
  // Sentences for the log: who was refused, and what happened to the disk and the rails. One thread
  // at a time.
  std::vector<std::string> take_notices();

 private:
  void write_sections(JsonWriter& json) const;

  const Parts parts_;
  DiskWatch disk_watch_;
};

}  // namespace peercached
