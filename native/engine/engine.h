// The data plane put together: pool, shard, transfer engine and IPC server, and the path of a
// request through them.
//
//   set     reserve -> copy -> commit -> publish (control plane) -> answer      set.cc
//   get     pool, else disk, else location cache, else our shard, else owners   get.cc, get_run.h
//           -> READ, after Promote for pages on a peer's disk                   get_peers.cc
//   exists  the same places, without the READ                                   exists.cc
//
// The control plane (Python) decides which nodes are in the cluster, and talks to them. It calls
// the methods under "control plane" and answers the events of engine/control.h.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/trace.h"
#include "engine/cold_pages.h"
#include "engine/control.h"
#include "engine/copies.h"
#include "engine/crew.h"
#include "engine/disk_watch.h"
#include "engine/fences.h"
#include "engine/finality.h"
#include "engine/handover.h"
#include "engine/holds.h"
#include "engine/latencies.h"
#include "engine/locations.h"
#include "engine/namespaces.h"
#include "engine/nodes.h"
#include "engine/promoter.h"
#include "engine/quotas.h"
#include "engine/rail_watch.h"
#include "engine/recent_wishes.h"
#include "engine/record_feed.h"
#include "engine/under_way.h"
#include "engine/used_pages.h"
#include "ipc/ipc_server.h"
#include "pool/pool.h"
#include "shard/owner_records.h"
#include "shard/shard.h"
#include "transfer/fault/fault.h"
#include "transfer/rdma/fabric.h"
#include "transfer/routed/routed_engine.h"
#include "transfer/tcp/tcp_engine.h"
#include "transfer/tcp/tcp_server.h"
#include "transfer/verify.h"

namespace peercached {

enum class Protocol : uint8_t {
  automatic,  // RDMA if there is any, else TCP; the status says which
  rdma,       // RDMA, or an error
  tcp,
};

// A follower that is further behind begins anew. The kept changes take 3 MiB.
inline constexpr size_t kFeedChanges = 1 << 16;

struct EngineConfig {
  std::string node_id;
  Incarnation incarnation = 0;
  std::string version;
  std::string socket_path;
  uint32_t socket_mode = 0660;
  Key128 cluster_key{};
  uint64_t pool_bytes = 0;
  bool huge_pages = false;
  std::string pool_file;  // "": none
  // Namespaces that were cleared before this start, with their epochs. Their older pages are not
  // served.
  std::vector<std::pair<Digest, uint64_t>> epochs;
  std::string why_epochs_unknown;  // if not "", no page of an earlier start is served
  std::string removals_path;       // the journal; "": removals do not survive restarts
  uint64_t shard_entries = 0;
  uint64_t copied_records = 0;     // copies of other nodes' records; 0: no node is followed
  unsigned follow_wait_ms = 2000;  // wait of a follower's question; also the interval of life signs
  uint64_t location_cache_entries = 0;
  Verify verify = Verify::checksum;
  std::string data_host;
  uint16_t data_port = 0;
  bool data_sealed = false;  // the data port speaks TLS
  unsigned channels_per_peer = 8;
  unsigned copy_threads = 0;  // 0: chosen by the number of processors
  unsigned workers_max = 64;
  std::string faults;
  Protocol protocol = Protocol::tcp;
  std::vector<std::string> device_names;
  int gid_index = -1;
  rdma::LinkSettings link;
  // The disk tier; path "": none. The engine sets its identity and queue.
  DiskConfig disk;
};

// Counts of pages by outcome, since start.
struct OperationCounters {
  std::array<std::atomic<uint64_t>, kStatusCount> set{}, get{};   // by status_index()
  std::array<std::atomic<uint64_t>, kSourceNames.size()> hits{};  // pages got, by Source
  std::atomic<uint64_t> stale_retries{0};
  // Pages whose bytes did not match their checksum: in our own pool, and received from a peer.
  std::atomic<uint64_t> corrupt_local{0}, corrupt_remote{0};
  std::atomic<uint64_t> set_held{0}, unpublished{0};
  std::atomic<uint64_t> exists_keys{0}, exists_hits{0}, lookups_asked{0}, lookup_keys_asked{0};
  // Lookup frames sent to owners. Lookups, and their keys, left to the control plane.
  std::atomic<uint64_t> lookup_frames{0}, lookups_passed_on{0}, lookup_keys_passed_on{0};
  std::atomic<uint64_t> lookups_answered{0};  // lookup frames of peers
  std::atomic<uint64_t> keys_in_copies{0};    // keys not held here that a copy had
  // The same for records: frames to owners, batches left to the control plane, frames of peers.
  std::atomic<uint64_t> publish_frames{0}, publishes_passed_on{0}, publishes_answered{0};
  std::atomic<uint64_t> bytes_set{0}, bytes_got{0};
  std::atomic<uint64_t> used_elsewhere{0};  // pages here that peers reported as used
  // Pages taken over from draining nodes, and pages offered but not taken.
  std::atomic<uint64_t> adopted{0}, adopted_bytes{0}, adopt_refused{0};
};

// A traced get (common/trace.h).
struct TracedGet {
  TimePoint begin, end;
  PageStatus status = PageStatus::pending;
  std::vector<Trace::Step> steps;
};

class Engine final : public RequestHandler, public PeerWatcher, public rdma::Connector {
 public:
  explicit Engine(const EngineConfig& config);  // maps the pool
  ~Engine() override;

  // Which users and groups may be workers, beyond the socket's mode. Before start().
  void guard_workers(int64_t socket_group, std::vector<uint32_t> users,
                     std::vector<uint32_t> groups);
  // Quotas of namespaces; before start().
  void set_quotas(std::vector<QuotaRule> rules) { quotas_->set_rules(std::move(rules)); }
  void listen();  // binds the data port and serves peers
  void start();   // listen() if that was not done, then serves workers
  void stop();

  // --- RequestHandler, on the workers' connection threads
  std::shared_ptr<Namespace> open_namespace(std::string_view name, uint32_t user) override {
    return namespaces_.open(name, user);
  }
  void set(const RequestContext& context, std::span<PageRef> pages) override;
  void get(const RequestContext& context, std::span<PageRef> pages) override;
  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) override;
  std::string remove(const RequestContext& context, std::span<PageRef> keys) override;
  std::string clear(const RequestContext& context) override;
  std::string stats_json(const RequestContext& context) override;
  void region_mapped(std::byte* base, uint64_t bytes) override;
  void device_region_mapped(std::byte* base, uint64_t bytes, int fd) override;
  void region_unmapped(std::byte* base) noexcept override;

  // --- PeerWatcher, on the transfer engine's threads
  void peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) override;

  // --- Connector, on the threads that read
  bool connect(HolderIndex peer, const rdma::ChannelEnd& own,
               std::span<const uint32_t> closed) override;

  // --- control plane
  ControlQueue& control() { return control_; }
  NamespaceTable& namespaces() { return namespaces_; }
  Pool& pool() { return *pool_; }
  Shard& shard() { return *shard_; }
  LocationCache& locations() { return locations_; }
  std::shared_ptr<const Ring> ring() const;
  uint16_t data_port() const;

  HolderIndex add_node(const std::string& node_id, Incarnation incarnation);
  void drop_node(HolderIndex index);
  void connect_node(HolderIndex index, const PeerEndpoint& endpoint);
  void suspect_node(HolderIndex index, bool suspect) { nodes_.set_suspect(index, suspect); }
  void admit_reader(const std::string& node_id, Incarnation incarnation, const std::string& token);
  void expel_reader(const std::string& node_id, Incarnation incarnation);
  // The channels of the RDMA engine (EventKind::connect_channel and its answers).
  void channel_connected(uint64_t connect_id, std::span<const std::byte> answer);
  void channel_refused(uint64_t connect_id, const std::string& why);
  std::vector<std::byte> accept_channel(const std::string& node_id, Incarnation incarnation,
                                        std::span<const std::byte> offer,
                                        std::span<const uint32_t> closed);
  unsigned rails() const;
  std::string transport_json() const;
  void set_ring(std::shared_ptr<const Ring> ring);  // and closes all owners to frames
  // Whether publish frames may go to that owner. engine/publish.cc
  void open_owner(HolderIndex index, bool open) { nodes_.open_owner(index, open); }
  // fence(): in all our publish frames. raise_fence(): refuses a peer's lower frames (fences.h).
  uint64_t fence() const { return fence_.load(); }
  void raise_fence(HolderIndex holder, uint64_t fence) { fences_.raise(holder, fence); }
  // Stores a peer's records in our shard. False: not all of them are there.
  bool publish_local(Incarnation holder, uint64_t fence, std::span<const RecordRow> rows);
  // Tells a follower how our records changed behind `position`. feed.cc
  bool feed_local(Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                  uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell);
  // Sets our sign of life, which expires after `ms`.
  void say_life(uint64_t view_number, uint64_t sequence, bool is_master,
                std::chrono::milliseconds ms);
  // Returns the signs received since the last call.
  std::vector<tcp::LifeSigns::Heard> take_life_signs() { return signs_.take(); }
  // `final`: all members are in sync here, so a digest that we own and do not know is nowhere.
  void set_shard_final(bool final, uint64_t view_number) { finality_.set(final, view_number); }
  void keep_final(uint32_t ms) { finality_.keep(Deadline::after_ms(ms).at); }
  // Answers a peer's lookup from our shard. engine/locate.cc
  void lookup_local(std::span<const Digest> digests, uint64_t view_number, Located& located);
  bool raise_epoch(const Digest& namespace_id, uint64_t epoch);
  std::vector<RecordRow> local_rows(std::span<const Digest> digests);
  // Removals that the cluster's members run at this node (peercached/peer/removals). When
  // begin_removal() returns, the pages are out of pool and disk. Nobody can set them here until
  // end_removal() of the same digests.
  enum class Removed { kept, not_kept, too_many };  // not_kept: a restart may bring them back
  Removed begin_removal(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  void end_removal(std::span<const Digest> digests);
  // For removals that are over: drops only the pages that are here. False: not kept.
  bool remove_local(std::span<const Digest> digests, std::vector<RecordRow>& rows);
  // Drops all that is here. False: not kept.
  bool drop_all();
  // Hides the pages of an earlier start until release_held(). Those in the pool are dropped. Call
  // before workers are served.
  void hold_back() {
    std::vector<RecordRow> rows;
    if (!cold_->hold_back(rows)) write_removals_later();
    tell(rows);
  }
  void release_held() {
    cold_->release();
    feed_.forget();
  }
  Journal& journal() { return journal_; }
  // A disk folder or pool file was last used with a later state of state_dir, or with another one.
  bool state_is_old() const { return state_is_old_.load(std::memory_order_relaxed); }
  // Before begin_serving() and after end_serving() neither workers nor peers find anything here.
  void begin_serving();
  void end_serving();
  // While false, sets are answered with `draining` at once.
  void set_taking(bool taking) { taking_.store(taking, std::memory_order_release); }
  // Our pages in the order in which a drain hands them over. Each part is of one namespace.
  Handovers handovers(uint64_t bytes_max) const;
  // Takes over pages of a draining node: reads, checks and publishes them. engine/adopt.cc
  Adopted adopt(HolderIndex holder, const Handover& offered, Deadline deadline);
  // Gets one page of `length` bytes into memory of its own. Throws std::invalid_argument if the
  // namespace cannot be opened. engine/trace.cc
  TracedGet trace_get(std::string_view name, std::string_view key, uint32_t length,
                      Deadline deadline);
  // Drops pages from our pool and returns their withdrawals. A copy on disk stays.
  std::vector<RecordRow> drop_from_pool(std::span<const Digest> digests);
  // For a peer: reads these pages from disk if need be. Returns records of those in our pool now,
  // withdrawals of those not here, and rows without flags where the disk failed. No row: not now.
  // engine/promote.cc
  std::vector<RecordRow> promote_local(std::span<const Digest> digests, Deadline deadline);
  // For a peer that has used these pages or is about to. They count as used now. Those on disk only
  // are promoted when there is time.
  void warm_local(std::span<const Digest> digests);
  // Pages that we READ without their holders noticing, since the last call.
  std::map<HolderIndex, std::vector<Digest>> take_used() { return used_.take(); }
  // False: the namespace was cleared meanwhile, so these digests are the wrong ones.
  bool remove_in_epoch(const RequestContext& context, std::span<PageRef> keys, std::string& text);
  // held[i] = 1: the page stays here for `hold_ms` (engine/holds.h).
  void hold_local(std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held);
  // The generation to resync against, and the summaries of our records by owner.
  std::pair<Generation, OwnerSummaries> pool_summaries() const;
  std::pair<Generation, std::vector<RecordRow>> pool_rows(HolderIndex owner,
                                                          std::span<const uint8_t> buckets) const;
  // Sentences for the log: who was refused, and what happened to the disk and the rails.
  std::vector<std::string> take_notices() {
    quotas_->tell(notices_);
    if (cold_->enabled() && disk_watch_.due()) disk_watch_.tell(cold_->tier().stats(), notices_);
    if (fabric_ && rail_watch_.due()) rail_watch_.tell(rails_now(), notices_);
    return notices_.take();
  }
  std::string status_json() const;
  std::vector<NamedLatency> latencies() const;
  std::vector<WorkerInfo> workers() const;

 private:
  struct SetRun;
  struct GetRun;
  struct AdoptRun;
  struct Search;

  // Queues records and withdrawals for owners and followers. Nobody waits for them.
  void tell(std::span<const RecordRow> rows);
  // If we are alone in the ring, stores the rows in our own shard, the only owner. Else false.
  bool publish_alone(std::span<const RecordRow> rows);
  // False: some owner may lack some of them, so the control plane must send them.
  bool publish_in_frames(std::span<const RecordRow> rows, Deadline deadline);
  // Finds records for `digests` of pages not held here. rows[i].holder == kNoHolder: none usable.
  // Then why[i] is absent, suspect, deadline, or stale (the record is our own). failed[i] is the
  // holder that failed us with this page. It is used again only if nobody else has the page.
  // `failed` may be empty. `of_prefix`: digests behind the first one that is nowhere need no
  // lookup.
  enum class Trust {
    cached,   // any entry of the location cache: a READ will verify it
    recent,   // only entries learnt a moment ago: the answer is a promise
    nothing,  // no entry: one has just misled us, so ask the owners
  };
  void locate(std::span<const Digest> digests, std::span<const HolderIndex> failed, Trust trust,
              Deadline deadline, std::span<RecordRow> rows, std::span<PageStatus> why,
              Trace* trace = nullptr, bool of_prefix = false);
  void sweep_namespace_later(uint32_t pool_slot);
  bool write_removals_later();  // returns false
  // For a caller that waits, here or at a peer.
  Promotions promote_now(std::span<const Digest> digests, Deadline deadline);
  // Has hits among the first `told` keys promoted if they are on a disk only. The disk is ours, or
  // that of rows[k].holder for the index[k]-th key.
  void warm_present(std::span<const Digest> digests, std::span<const uint8_t> on_disk,
                    std::span<const size_t> index, std::span<const RecordRow> rows, size_t told,
                    std::span<const uint8_t> present);
  // Clears present[] of pages that could not be held, here or at rows[k].holder of the index[k]-th
  // key.
  void hold_present(const RequestContext& context, std::span<const Digest> digests,
                    std::span<const size_t> index, std::span<const RecordRow> rows,
                    std::span<uint8_t> present);
  void janitor();
  std::unique_ptr<ColdTier> open_disk(const std::function<std::string(const TierNote&)>& why_not,
                                      const RemovalJudge& is_void);  // throws DiskError
  // Null if RDMA is not wanted, or absent and not demanded; why_no_rdma_ says why. Throws if it is
  // demanded and absent.
  std::unique_ptr<rdma::Fabric> make_fabric();
  std::vector<RailNow> rails_now() const;

  const EngineConfig config_;
  Notices notices_;
  DiskWatch disk_watch_{config_.disk.path};
  RailWatch rail_watch_;
  int64_t socket_group_ = -1;
  ipc::Admission admission_;
  ControlQueue control_;
  NodeTable nodes_;
  NamespaceTable namespaces_;
  Running running_;
  LocationCache locations_;
  Journal journal_;
  std::atomic<bool> state_is_old_{false};
  std::unique_ptr<ColdPages> cold_;  // outlives pool_, which may evict until its end
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Quotas> quotas_;
  std::unique_ptr<HoldTable> holds_;
  std::atomic<ColdPages*> cold_pages_{nullptr};  // null until pages may leave pool and disk
  std::unique_ptr<Promoter> promoter_;
  RecentWishes warm_wishes_;
  UsedPages used_;
  std::unique_ptr<Shard> shard_;
  RecordFeed feed_{kFeedChanges};
  tcp::LifeSigns signs_;
  std::unique_ptr<Copies> copies_;  // null: no node is followed
  CopyCrew crew_;
  VerifyingSink verifier_;
  OperationCounters counters_;
  Latencies latencies_;

  mutable std::mutex ring_mutex_;
  std::shared_ptr<const Ring> ring_;
  std::atomic<bool> alone_{true};  // nobody else is in the ring
  Finality finality_;
  std::atomic<uint64_t> fence_{1};
  Fences fences_;
  UnderWay commits_;  // commits whose records are not told yet
  std::atomic<bool> taking_{true};
  std::atomic<bool> serving_{false};

  mutable std::mutex readers_mutex_;
  // Read tokens, by process and not by node id. A second daemon with a copied configuration shakes
  // hands before it is refused, and must not shut out the first one. The control plane bounds their
  // number.
  std::map<std::pair<std::string, Incarnation>, std::string> readers_;

  std::mutex janitor_mutex_;
  std::condition_variable janitor_wake_;
  std::vector<uint32_t> stale_namespaces_;
  std::map<Digest, uint64_t> stale_on_disk_;  // namespace -> its new epoch
  bool sweep_shard_ = false;
  bool look_at_holds_ = false;
  bool write_removals_ = false;  // some are not in the journal yet
  bool stopping_ = false;
  std::thread janitor_thread_;

  std::string why_no_rdma_;
  std::unique_ptr<rdma::Fabric> fabric_;  // null: TCP only
  RoutedCounters routed_counters_;
  std::unique_ptr<TransferEngine> transfer_;
  std::unique_ptr<tcp::Follower> follower_;
  std::unique_ptr<TcpServer> tcp_server_;
  std::unique_ptr<IpcServer> ipc_;
};

}  // namespace peercached
