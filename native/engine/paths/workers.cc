#include "engine/paths/workers.h"

#include <algorithm>
#include <utility>

namespace peercached {

namespace {

constexpr unsigned kConnectionsMin = 256;

}  // namespace

void Workers::guard(int64_t socket_group, std::vector<uint32_t> users,
                    std::vector<uint32_t> groups) {
  socket_group_ = socket_group;
  admission_.users = std::move(users);
  admission_.groups = std::move(groups);
}

void Workers::bind(const EngineConfig& config, Notices& notices, RequestHandler& handler) {
  if (server_.get() || config.role == Role::memory) return;
  IpcServerConfig ipc;
  ipc.socket_path = config.socket_path;
  ipc.socket_mode = config.socket_mode;
  ipc.socket_group = socket_group_;
  ipc.notices = &notices;
  // A worker has a connection per thread. No process and no user may take all connections.
  ipc.attachments_max = config.workers_max;
  ipc.attachments_per_process_max = std::max(1u, config.workers_max / 2);
  ipc.connections_max = std::max(kConnectionsMin, 8 * config.workers_max);
  ipc.admission = admission_;
  ipc.admission.per_user_max = ipc.connections_max / 2;
  ipc.admission.per_process_max = ipc.connections_max / 4;
  ipc.incarnation = config.incarnation;
  ipc.version = config.version;
  if (config.kv_events_port == 0) ipc.features &= ~uint32_t{ipc::kFeatureNames};
  server_.make(ipc, handler);
}

}  // namespace peercached
