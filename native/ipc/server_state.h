// State shared by all connections of one server: the attachments, the counters, the handler.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "ipc/attachment.h"
#include "ipc/frame_memory.h"
#include "ipc/handler.h"
#include "ipc/ipc_server.h"
#include "ipc/map_ahead.h"

namespace peercached::ipc {

class ServerState {
 public:
  ServerState(const IpcServerConfig& config_, RequestHandler& handler_)
      : config(config_),
        handler(handler_),
        frame_memory(config.frame_memory_max, config.frame_memory_max / 2) {}

  const IpcServerConfig config;
  RequestHandler& handler;
  FrameMemory frame_memory;
  MapAhead map_ahead;
  std::atomic<uint32_t> next_region{1};
  IpcStats counters;

  // A zero token makes a new attachment. Any other token finds its attachment, if user and
  // namespace match. Throws RequestError. Counts the connection in: call leave() once per
  // successful call.
  std::shared_ptr<Attachment> attach(const Hello& hello, uint32_t pid, uint32_t uid);
  void leave(std::shared_ptr<Attachment> attachment);

  std::vector<WorkerInfo> workers() const;

 private:
  mutable Mutex mutex_;
  std::map<Token, std::shared_ptr<Attachment>> attachments_ GUARDED_BY(mutex_);
  uint64_t next_attachment_ GUARDED_BY(mutex_) = 1;
};

}  // namespace peercached::ipc
