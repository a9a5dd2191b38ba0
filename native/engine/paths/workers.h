// The workers of this node: who may be one, and the socket where they are served.
#pragma once

#include <cstdint>
#include <vector>

#include "common/made_late.h"
#include "common/notices.h"
#include "engine/control/config.h"
#include "ipc/ipc_server.h"

namespace peercached {

class Workers {
 public:
  // Limits the workers to these users and groups, beyond the socket's mode. Call it before bind().
  void guard(int64_t socket_group, std::vector<uint32_t> users, std::vector<uint32_t> groups);
  // Binds the socket, if that was not done and the node's role has one. Throws std::system_error or
  // std::runtime_error.
  void bind(const EngineConfig& config, Notices& notices, RequestHandler& handler);
  void serve() {  // after bind()
    if (IpcServer* const server = server_.get()) server->serve();
  }
  void close() {
    if (IpcServer* const server = server_.get()) server->stop();
  }

  // These two on any thread, at any time.
  std::vector<WorkerInfo> list() const {
    const IpcServer* const server = server_.get();
    return server ? server->workers() : std::vector<WorkerInfo>{};
  }
  IpcStats stats() const {
    const IpcServer* const server = server_.get();
    return server ? server->stats() : IpcStats{};
  }

 private:
  int64_t socket_group_ = -1;
  ipc::Admission admission_;
  MadeLate<IpcServer> server_;
};

}  // namespace peercached
