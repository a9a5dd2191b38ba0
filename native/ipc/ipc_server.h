// The worker-facing server: a Unix stream socket, one thread per connection.
//
// A worker process *attaches* once (HELLO with no token) and may open more connections into
// the same attachment with its token. Regions belong to the attachment: memfds passed with
// SCM_RIGHTS, sealed against shrinking where possible, mapped once, unmapped when its last
// connection is gone and no request uses them. Frames: docs/protocol.md, "IPC".
//
// A bad frame is answered with a clear error; where the stream can no longer be trusted that
// connection is closed. Nobody else is affected.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/notices.h"
#include "ipc/handler.h"
#include "ipc/visitors.h"

namespace peercached {

struct IpcServerConfig {
  std::string socket_path;
  uint32_t socket_mode = 0660;
  int64_t socket_group = -1;  // of the socket; -1: the daemon's own
  ipc::Admission admission;
  unsigned connections_max = 256;
  unsigned attachments_max = 64;
  unsigned attachments_per_process_max = 0;  // 0: as many as there may be
  int hello_timeout_ms = 5000;
  // SGLang's DeepSeek V4 pools have a file for each layer of each of up to eight pools. Attachments
  // times this stay below what the kernel lets one process map (vm.max_map_count, 65530).
  unsigned regions_per_attachment_max = 512;
  uint64_t region_bytes_max = 1ull << 42;  // of one attachment, all regions together
  // Of the requests above 64 KiB that are read or served at a time; of one user's, half of it.
  uint64_t frame_memory_max = 512ull << 20;
  uint32_t deadline_ms_max = 600'000;
  Incarnation incarnation = 0;
  std::string version;
  Notices* notices = nullptr;  // outlives the server
};

struct WorkerInfo {  // for `peercachectl workers` and status
  uint64_t attachment = 0;
  uint32_t pid = 0, uid = 0;
  std::string name, ns;
  uint32_t connections = 0, regions = 0;
  uint64_t region_bytes = 0, requests = 0;
  uint64_t given_up = 0;  // requests that the worker did not wait for to the end
  uint32_t stuck = 0;     // of these: the daemon is still at work in the worker's memory
};

struct IpcStats {
  uint64_t connections = 0, accepted = 0, refused = 0, bad_frames = 0, regions_lost = 0;
  // Of `refused`: by user and group, and one process's or user's too many. Late: said no HELLO.
  uint64_t forbidden = 0, crowded = 0, late_hellos = 0;
  uint64_t requests_refused = 0;  // for want of memory for large ones
  uint64_t sets = 0, gets = 0, exists = 0, others = 0;
  uint64_t given_up = 0;  // requests that their worker did not wait for to the end
};

class IpcServer {
 public:
  // Binds; throws std::system_error / std::runtime_error: a path where a live daemon answers
  // is refused, a dead daemon's socket is taken over.
  IpcServer(const IpcServerConfig& config, RequestHandler& handler);
  ~IpcServer();  // closes all connections, joins all threads

  IpcStats stats() const;
  std::vector<WorkerInfo> workers() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
