// The data plane put together. Engine makes the parts, ends them, and hands each request of a
// worker to the path that serves it. The parts live in rooms. Each room includes only the rooms
// above it in this list (tools/check_includes), and none knows Engine:
//
//   measures/  counters, latencies, and what workers looked for
//   control/   settings, and the queue of events for the control plane (Python)
//   storage/   our pages: pool, disk tier, namespaces, quotas, holds, housekeeping
//   records/   which nodes have which pages: our records told to others, theirs found here
//   peers/     connections: transports, the nodes that we read from, and those that read from us
//   handover/  pages that move or are copied from node to node
//   paths/     requests of workers: set, get, exists, and those that the control plane runs
//   observe/   what an operator sees: status, sentences for the log, traces
//
// The control plane decides which nodes are in the cluster, and talks to them. It calls the parts
// through native/bindings.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "common/copy_crew.h"
#include "common/notices.h"
#include "device/device.h"
#include "device/pinning.h"
#include "engine/control/config.h"
#include "engine/control/control_queue.h"
#include "engine/control/serving.h"
#include "engine/handover/adopter.h"
#include "engine/handover/offers.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/observe/operator_view.h"
#include "engine/observe/page_events.h"
#include "engine/observe/traces.h"
#include "engine/paths/bounce.h"
#include "engine/paths/cluster_requests.h"
#include "engine/paths/exists_path.h"
#include "engine/paths/get_path.h"
#include "engine/paths/set_path.h"
#include "engine/paths/used_pages.h"
#include "engine/paths/workers.h"
#include "engine/peers/peers.h"
#include "engine/peers/pool_growth.h"
#include "engine/peers/readers.h"
#include "engine/peers/transports.h"
#include "engine/records/directory.h"
#include "engine/records/locations.h"
#include "engine/records/locator.h"
#include "engine/records/nodes.h"
#include "engine/records/prefixes.h"
#include "engine/records/publisher.h"
#include "engine/records/removals.h"
#include "engine/storage/hinted_pages.h"
#include "engine/storage/janitor.h"
#include "engine/storage/local_pages.h"
#include "engine/storage/storage.h"
#include "ipc/handler.h"
#include "removals/running.h"
#include "transfer/verify.h"

namespace peercached {

class Engine final : public RequestHandler {
 public:
  static constexpr size_t kFreshMax = 65536;

  explicit Engine(const EngineConfig& config);  // maps the pool
  ~Engine() override;

  void listen();        // binds the data port and serves peers
  void bind_workers();  // takes the workers' socket path; nobody can connect yet
  void start();         // serves workers, after the two above if they were not done
  void stop();
  void set_ring(std::shared_ptr<const Ring> ring);
  // Before begin_serving() and after end_serving() neither workers nor peers find anything here.
  void begin_serving();
  void end_serving();
  // Likewise while paused. Their holds and sets that have begun go on.
  void set_paused(bool paused);
  // While false, sets are answered with `draining` at once, and no pages are adopted.
  void set_taking(bool taking) { serving_.take(taking); }

  // --- RequestHandler, on the workers' connection threads
  std::shared_ptr<Namespace> open_namespace(std::string_view name, uint32_t user) override {
    return storage_.namespaces().open(name, user);
  }
  void set(const RequestContext& context, std::span<PageRef> pages) override {
    set_path_->set(context, pages);
  }
  void get(const RequestContext& context, std::span<PageRef> pages) override {
    if (context.caller != nullptr && call_traces_.on())
      return call_traces_.get(*get_path_, context, pages);
    get_path_->get(context, pages);
  }
  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) override {
    return exists_path_->exists(context, keys, all);
  }
  std::string remove(const RequestContext& context, std::span<PageRef> keys) override {
    return remove_everywhere(control_, context, keys);
  }
  std::string pin(const RequestContext& context, std::span<PageRef> keys) override {
    return pin_pages(control_, context, keys);
  }
  HintAnswer hint(const RequestContext& context, std::span<PageRef> keys,
                  std::string_view envelope) override {
    return hand_on_hints(control_, context, keys, envelope);
  }
  std::string clear(const RequestContext& context) override {
    return clear_everywhere(control_, context);
  }
  std::string stats_json(const RequestContext& context) override {
    return operator_view_->stats_json(context);
  }
  void client_took(ipc::TookOp op, std::chrono::microseconds time) override {
    latencies_.client[static_cast<size_t>(op)].add(time);
  }
  void region_mapped(std::byte* base, uint64_t bytes) override {
    transports_.region_mapped(base, bytes);
  }
  void device_region_mapped(std::byte* base, uint64_t bytes, int fd) override {
    transports_.device_region_mapped(base, bytes, fd);
  }
  void region_unmapped(std::byte* base) noexcept override { transports_.region_unmapped(base); }
  std::shared_ptr<device::Memory> import_device(const device::Handle& handle) override;

  // --- the parts
  ControlQueue& control() { return control_; }
  NodeTable& nodes() { return nodes_; }
  Directory& directory() { return directory_; }
  const Directory& directory() const { return directory_; }
  const Locator& locator() const { return *locator_; }
  Storage& storage() { return storage_; }
  Transports& transports() { return transports_; }
  Publisher& publisher() { return *publisher_; }
  LocationCache& locations() { return locations_; }
  LocalPages& local_pages() { return *local_pages_; }
  HintedPages& hinted_pages() { return *hinted_pages_; }
  const Offers& offers() const { return offers_; }
  const Prefixes& prefixes() const { return *prefixes_; }
  HolderSpeeds& speeds() { return speeds_; }
  UsedPages& used_pages() { return used_pages_; }
  PartQueue& hot() { return hot_reads_.hot(); }
  PartQueue& fresh() { return fresh_; }
  // Whether fresh() gets the pages that are set from now on.
  void note_sets(bool on) { fresh_.set_on(on); }
  Removals& removals() { return *removals_; }
  Adopter& adopter() { return *adopter_; }
  Peers& peers() { return *peers_; }
  Readers& readers() { return readers_; }
  Workers& workers() { return workers_; }
  OperatorView& operator_view() { return *operator_view_; }
  CallTraces& call_traces() { return call_traces_; }
  PageEvents* page_events() { return page_events_.get(); }  // null: none are told

 private:
  void make_paths();
  void make_devices();
  // The records of our pages that other nodes may find.
  std::vector<RecordRow> own_records(std::span<const Digest> digests) const;

  // The destructor ends the threads that use other parts. Then the parts end in reverse order.
  const EngineConfig config_;
  Serving serving_;
  Notices notices_;
  OperationCounters counters_;
  Latencies latencies_;
  CallTraces call_traces_;
  ControlQueue control_;
  NodeTable nodes_;
  Janitor janitor_;
  Directory directory_;
  std::unique_ptr<Publisher> publisher_;     // outlives the pool, which may evict until its end
  std::unique_ptr<PageEvents> page_events_;  // outlives all that changes records; null: none
  Storage storage_;
  Transports transports_;
  std::unique_ptr<device::Devices> devices_;  // null: gpu = "off"
  std::once_flag has_device_;
  std::unique_ptr<device::Pinning> pinning_;  // of the pool, from the first import on
  std::unique_ptr<Bounce> bounce_;
  Running running_;
  LocationCache locations_;
  HolderSpeeds speeds_;
  LoadTimes load_times_;
  UsedPages used_pages_;
  RecentWishes warm_wishes_;
  Offers offers_;
  HotReads hot_reads_;
  PartQueue fresh_{kFreshMax};
  CopyCrew crew_;
  VerifyingSink verifier_;
  std::unique_ptr<Locator> locator_;
  std::unique_ptr<Prefixes> prefixes_;
  std::unique_ptr<LocalPages> local_pages_;
  std::unique_ptr<HintedPages> hinted_pages_;
  std::unique_ptr<Removals> removals_;
  std::unique_ptr<Adopter> adopter_;
  std::unique_ptr<SetPath> set_path_;
  std::unique_ptr<GetPath> get_path_;
  std::unique_ptr<ExistsPath> exists_path_;
  std::unique_ptr<Peers> peers_;
  Readers readers_;
  Workers workers_;
  std::unique_ptr<OperatorView> operator_view_;
  PoolGrowth growth_;
};

}  // namespace peercached
