// The worker-facing server: a Unix stream socket, one thread per connection.
//
// A worker process *attaches* once (HELLO with no token). With its token it may open more
// connections into the same attachment. Regions belong to the attachment. They are memfds passed
// with SCM_RIGHTS, sealed against shrinking where possible, and mapped once. They are unmapped when
// the last connection is gone and no request uses them. Frames: docs/protocol.md, "IPC".
//
// A bad frame gets a clear error. If the stream can no longer be trusted, the server closes that
// connection; no other is affected.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/counter.h"
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
  unsigned attachments_per_process_max = 0;  // 0: no limit per process
  int hello_timeout_ms = 5000;
  // SGLang's DeepSeek V4 has up to eight pools with one file per layer each. Attachments times this
  // must stay below the kernel's limit of mappings per process (vm.max_map_count, 65530).
  unsigned regions_per_attachment_max = 512;
  uint64_t region_bytes_max = 1ull << 42;  // of one attachment, all regions together
  // For all requests above 64 KiB being read or served; one user may take half of it.
  uint64_t frame_memory_max = 512ull << 20;
  uint32_t deadline_ms_max = 600'000;
  Incarnation incarnation = 0;
  uint32_t features = ipc::kFeatures;  // that clients may use
  std::string version;
  Notices* notices = nullptr;  // outlives the server
};

struct WorkerInfo {  // for `peercachectl workers` and status
  uint64_t attachment = 0;
  uint32_t pid = 0, uid = 0;
  std::string name, ns;
  uint32_t connections = 0, regions = 0;
  uint64_t region_bytes = 0, requests = 0;
  uint64_t given_up = 0;                 // requests that the worker stopped waiting for
  uint32_t stuck = 0;                    // of these: the daemon still accesses the worker's memory
  std::chrono::duration<double> idle{};  // since its last request, or since it attached
};

struct IpcStats {
  Counter connections, accepted, refused, bad_frames, regions_lost;
  // forbidden, crowded: included in `refused`. forbidden: by user or group. crowded: too many of
  // one process or user. late_hellos: sent no HELLO in time.
  Counter forbidden, crowded, late_hellos;
  Counter requests_refused;  // no memory for large ones
  Counter sets, gets, exists, others;
  Counter given_up;  // requests that their worker stopped waiting for
};

class IpcServer {
 public:
  // Binds the socket and takes over a dead daemon's; workers are refused until serve(). Throws
  // std::system_error or std::runtime_error, for example if a live daemon has the path.
  IpcServer(const IpcServerConfig& config, RequestHandler& handler);
  void serve();  // call it once; throws std::runtime_error
  void stop();   // closes all connections, joins all threads, frees the path
  ~IpcServer();  // stops

  // Also while it stops, and afterwards.
  IpcStats stats() const;
  std::vector<WorkerInfo> workers() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace peercached
