// The data plane put together: pool, shard, transfer engine and IPC server, and the path of a
// request through them.
//
//   set     reserve -> copy -> commit -> publish (control plane) -> answer      set_path.h
//   get     pool, else disk, else location cache, else our shard, else owners   get_path.h
//           -> READ, after Promote for pages on a peer's disk                   get_peers.cc
//   exists  the same places, without the READ                                   exists_path.h
//
// The control plane (Python) decides which nodes are in the cluster, and talks to them. It calls
// the methods under "control plane" and answers the events of engine/control.h.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/notices.h"
#include "engine/adopter.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/copies.h"
#include "engine/counters.h"
#include "engine/crew.h"
#include "engine/directory.h"
#include "engine/disk_watch.h"
#include "engine/exists_path.h"
#include "engine/get_path.h"
#include "engine/janitor.h"
#include "engine/latencies.h"
#include "engine/local_pages.h"
#include "engine/locations.h"
#include "engine/locator.h"
#include "engine/nodes.h"
#include "engine/peers.h"
#include "engine/publisher.h"
#include "engine/readers.h"
#include "engine/removals.h"
#include "engine/remove.h"
#include "engine/set_path.h"
#include "engine/storage.h"
#include "engine/transport.h"
#include "engine/used_pages.h"
#include "ipc/ipc_server.h"
#include "pool/pool.h"
#include "transfer/verify.h"

namespace peercached {

class Engine final : public RequestHandler {
 public:
  explicit Engine(const EngineConfig& config);  // maps the pool
  ~Engine() override;

  // Which users and groups may be workers, beyond the socket's mode. Before start().
  void guard_workers(int64_t socket_group, std::vector<uint32_t> users,
                     std::vector<uint32_t> groups);
  void listen();  // binds the data port and serves peers
  void start();   // listen() if that was not done, then serves workers
  void stop();

  // --- RequestHandler, on the workers' connection threads
  std::shared_ptr<Namespace> open_namespace(std::string_view name, uint32_t user) override {
    return storage_.namespaces().open(name, user);
  }
  void set(const RequestContext& context, std::span<PageRef> pages) override {
    set_path_->set(context, pages);
  }
  void get(const RequestContext& context, std::span<PageRef> pages) override {
    get_path_->get(context, pages);
  }
  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) override {
    return exists_path_->exists(context, keys, all);
  }
  std::string remove(const RequestContext& context, std::span<PageRef> keys) override {
    return remove_everywhere(control_, context, keys);
  }
  std::string clear(const RequestContext& context) override {
    return clear_everywhere(control_, context);
  }
  std::string stats_json(const RequestContext& context) override;
  void region_mapped(std::byte* base, uint64_t bytes) override {
    transport_.region_mapped(base, bytes);
  }
  void device_region_mapped(std::byte* base, uint64_t bytes, int fd) override {
    transport_.device_region_mapped(base, bytes, fd);
  }
  void region_unmapped(std::byte* base) noexcept override { transport_.region_unmapped(base); }

  // --- control plane
  ControlQueue& control() { return control_; }
  Storage& storage() { return storage_; }
  Directory& directory() { return directory_; }
  NodeTable& nodes() { return nodes_; }
  LocationCache& locations() { return locations_; }
  Transport& transport() { return transport_; }
  Publisher& publisher() { return *publisher_; }
  Peers& peers() { return *peers_; }
  Readers& readers() { return readers_; }
  LocalPages& pages() { return *pages_; }
  Removals& removals() { return *removals_; }
  UsedPages& used_pages() { return used_pages_; }
  Adopter& adopter() { return *adopter_; }
  // Before begin_serving() and after end_serving() neither workers nor peers find anything here.
  void begin_serving();
  void end_serving();
  // While false, sets are answered with `draining` at once.
  void set_taking(bool taking) { taking_.store(taking, std::memory_order_release); }
  // Sentences for the log: who was refused, and what happened to the disk and the rails.
  std::vector<std::string> take_notices() {
    storage_.quotas().tell(notices_);
    ColdPages& cold = storage_.cold();
    if (cold.enabled() && disk_watch_.due()) disk_watch_.tell(cold.tier().stats(), notices_);
    transport_.tell(notices_);
    return notices_.take();
  }
  std::string status_json() const;
  std::vector<NamedLatency> latencies() const;
  std::vector<WorkerInfo> workers() const;

 private:
  const EngineConfig config_;
  Notices notices_;
  DiskWatch disk_watch_{config_.disk.path};
  int64_t socket_group_ = -1;
  ipc::Admission admission_;
  ControlQueue control_;
  Janitor janitor_;
  OperationCounters counters_;
  NodeTable nodes_;
  Directory directory_;
  std::unique_ptr<Copies> copies_;        // null: no node is followed
  std::unique_ptr<Publisher> publisher_;  // outlives the pool, which may evict until its end
  Storage storage_;
  Transport transport_;
  Running running_;
  LocationCache locations_;
  Readers readers_;
  std::unique_ptr<Locator> locator_;
  std::unique_ptr<LocalPages> pages_;
  std::unique_ptr<Removals> removals_;
  std::unique_ptr<SetPath> set_path_;
  std::unique_ptr<GetPath> get_path_;
  std::unique_ptr<ExistsPath> exists_path_;
  std::unique_ptr<Adopter> adopter_;
  UsedPages used_pages_;
  CopyCrew crew_;
  VerifyingSink verifier_;
  Latencies latencies_;

  std::atomic<bool> taking_{true};
  std::atomic<bool> serving_{false};

  std::unique_ptr<Peers> peers_;
  std::unique_ptr<IpcServer> ipc_;
};

}  // namespace peercached
