#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <iterator>

#include "common/fault_guard.h"

namespace peercached {

namespace {

constexpr size_t kEventsMax = 16'384;
constexpr size_t kEventBytesMax = 64 << 20;
constexpr size_t kSweepPages = 4096;
constexpr size_t kSweepRecords = 32 * 1024;
constexpr size_t kHoldsMax = 1 << 18;
constexpr uint64_t kHoldsShare = 4;        // at most 1/4 of the pool may be held
constexpr uint64_t kWriteBehindShare = 4;  // at most 1/4 of the pool may wait to be written
constexpr uint64_t kWriteBehindBytesMax = 512 << 20;
constexpr int64_t kFlushMs = 2'000;  // time for the disk when we stop

constexpr std::chrono::seconds kRetryRemovals{1};  // of entries that the journal could not write

constexpr unsigned kConnectionsMin = 256;

unsigned copy_helpers(unsigned threads) {
  if (threads == 0) {
    // One core nearly fills the memory bus; beyond four threads nothing is gained.
    threads = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u);
  }
  return threads - 1;
}

JournalConfig journal_of(const EngineConfig& config) {
  JournalConfig journal;
  journal.path = config.removals_path;
  journal.identity = store_identity(config.cluster_key, config.node_id);
  journal.sync = config.disk.sync == SyncPolicy::batch;
  return journal;
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : config_(config),
      control_(kEventsMax, kEventBytesMax),
      nodes_(config.node_id, config.incarnation),
      namespaces_(config.cluster_key),
      locations_(config.location_cache_entries, running_),
      journal_(journal_of(config)),
      crew_(copy_helpers(config.copy_threads)),
      verifier_(config.verify) {
  install_fault_guard();
  // The journal of removals judges the pages that outlived the last process.
  std::function<std::string(const TierNote&)> why_not;
  RemovalJudge is_void;
  if (!config.removals_path.empty()) {
    why_not = [this](const TierNote& note) {
      std::string why = journal_.why_not(note);
      if (!why.empty()) state_is_old_.store(true, std::memory_order_relaxed);
      return why;
    };
    is_void = [past = std::make_shared<const Past>(journal_.past())](
                  const Digest& digest, Position set_at) { return past->is_void(digest, set_at); };
  }
  // Recovers the disk while the pool's memory is being touched.
  std::future<std::unique_ptr<ColdTier>> disk;
  if (!config.disk.path.empty())
    disk = std::async(std::launch::async, [&] { return open_disk(why_not, is_void); });
  PoolConfig pool_config;
  pool_config.size_bytes = config.pool_bytes;
  pool_config.incarnation = config.incarnation;
  pool_config.huge_pages = config.huge_pages;
  pool_config.file = {config.pool_file, store_identity(config.cluster_key, config.node_id),
                      config.why_epochs_unknown, why_not};
  pool_config.position = [this] { return journal_.last(); };
  pool_config.is_void = is_void;
  for (const auto& [id, epoch] : config.epochs) raise_epoch(id, epoch);
  pool_ = std::make_unique<Pool>(
      pool_config,
      [this](std::span<const RecordRow> rows) {
        // Null at first: nobody was told of these pages yet.
        if (ColdPages* cold = cold_pages_.load(std::memory_order_acquire)) cold->left_pool(rows);
      },
      [this](std::span<PageNamespace> found) { namespaces_.judge(found); });
  cold_ = std::make_unique<ColdPages>(*pool_, namespaces_, journal_,
                                      [this](std::span<const RecordRow> rows) { tell(rows); });
  // Quotas first: the disk's epochs may void pages from the pool's file.
  quotas_ = std::make_unique<Quotas>(*pool_, *cold_);
  namespaces_.on_slot([this](const Namespace& ns, uint32_t slot) { quotas_->opened(ns, slot); });
  namespaces_.forget_unused([this](uint32_t slot) { return pool_->use_of(slot).bytes != 0; },
                            [this](uint32_t slot) { quotas_->void_slot(slot); });
  if (disk.valid()) {
    cold_->start(disk.get());
    // An epoch above ours is believed: this node was told of it when it wrote those pages.
    for (const auto& [id, epoch] : cold_->epochs()) raise_epoch(id, epoch);
  }
  if (!config.removals_path.empty()) cold_->note_removals();
  promoter_ = std::make_unique<Promoter>(*pool_, namespaces_, *cold_);
  holds_ = std::make_unique<HoldTable>(*pool_, kHoldsMax, pool_->size_bytes() / kHoldsShare);
  const auto sweep = [this] {
    {
      std::lock_guard lock(janitor_mutex_);
      sweep_shard_ = true;
    }
    janitor_wake_.notify_one();
  };
  shard_ = std::make_unique<Shard>(config.shard_entries, sweep);
  shard_->add_holder(kSelfHolder);
  if (config.copied_records != 0) copies_ = std::make_unique<Copies>(config.copied_records, sweep);
  cold_pages_.store(cold_.get(), std::memory_order_release);

  TcpEngineConfig tcp;
  tcp.node_id = config.node_id;
  tcp.incarnation = config.incarnation;
  tcp.channels_per_peer_max = config.channels_per_peer;
  tcp.bind_host = config.data_host;
  transfer_ = make_tcp_engine(tcp, *this);
  if (copies_) {
    follower_ = std::make_unique<tcp::Follower>(*copies_, signs_, tcp,
                                                std::chrono::milliseconds(config.follow_wait_ms));
  }
  fabric_ = make_fabric();
  if (fabric_) {
    transfer_ = make_routed_engine(
        fabric_->engine(), std::move(transfer_),
        config.protocol == Protocol::rdma ? Unreached::fail : Unreached::use_other,
        routed_counters_);
  }
  const FaultPlan plan = parse_fault_plan(config.faults);
  if (plan.any()) transfer_ = make_faulty(std::move(transfer_), plan, *this);

  janitor_thread_ = std::thread([this] { janitor(); });
}

std::unique_ptr<ColdTier> Engine::open_disk(
    const std::function<std::string(const TierNote&)>& why_not, const RemovalJudge& is_void) {
  DiskConfig disk = config_.disk;
  disk.why_not = why_not;
  disk.is_void = is_void;
  disk.identity = store_identity(config_.cluster_key, config_.node_id);
  disk.faults = config_.faults;
  disk.queue_bytes = std::min(config_.pool_bytes / kWriteBehindShare, kWriteBehindBytesMax);
  return open_disk_tier(disk, [this](std::span<const DiskPage> pages) {
    if (ColdPages* cold = cold_pages_.load(std::memory_order_acquire)) cold->left_disk(pages);
  });
}

Engine::~Engine() {
  stop();
  follower_.reset();
  {
    std::lock_guard lock(janitor_mutex_);
    stopping_ = true;
  }
  janitor_wake_.notify_all();
  janitor_thread_.join();
  promoter_.reset();
  cold_->end();  // writes its queue out, and may report lost pages
  cold_pages_.store(nullptr, std::memory_order_release);
}

void Engine::guard_workers(int64_t socket_group, std::vector<uint32_t> users,
                           std::vector<uint32_t> groups) {
  socket_group_ = socket_group;
  admission_.users = std::move(users);
  admission_.groups = std::move(groups);
}

void Engine::listen() {
  if (tcp_server_) return;
  TcpServerConfig server;
  server.host = config_.data_host;
  server.port = config_.data_port;
  server.sealed = config_.data_sealed;
  server.incarnation = config_.incarnation;
  server.notices = &notices_;
  tcp_server_ = std::make_unique<TcpServer>(
      server, *pool_,
      [this](const std::string& node_id, Incarnation incarnation) {
        std::lock_guard lock(readers_mutex_);
        auto found = readers_.find({node_id, incarnation});
        return found == readers_.end() ? std::string() : found->second;
      },
      TcpServer::Answers{
          [this] { return serving_.load(std::memory_order_acquire); },
          [this](std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held) {
            hold_local(digests, hold_ms, held);
          },
          [this](std::span<const Digest> digests, uint64_t view_number, Located& located) {
            lookup_local(digests, view_number, located);
          },
          [this](Incarnation holder, uint64_t fence, std::span<const RecordRow> rows) {
            return publish_local(holder, fence, rows);
          },
          [this](Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                 uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell) {
            return feed_local(follower, sign, position, wait_ms, tell);
          }});
}

void Engine::start() {
  listen();
  IpcServerConfig ipc;
  ipc.socket_path = config_.socket_path;
  ipc.socket_mode = config_.socket_mode;
  ipc.socket_group = socket_group_;
  ipc.notices = &notices_;
  // A worker has a connection per thread. No process and no user may take all connections.
  ipc.attachments_max = config_.workers_max;
  ipc.attachments_per_process_max = std::max(1u, config_.workers_max / 2);
  ipc.connections_max = std::max(kConnectionsMin, 8 * config_.workers_max);
  ipc.admission = admission_;
  ipc.admission.per_user_max = ipc.connections_max / 2;
  ipc.admission.per_process_max = ipc.connections_max / 4;
  ipc.incarnation = config_.incarnation;
  ipc.version = config_.version;
  ipc_ = std::make_unique<IpcServer>(ipc, *this);
}

void Engine::stop() {
  // Requests in flight end now and not at their deadlines: nobody answers them any more.
  control_.close();
  feed_.close();
  for (const auto& node : nodes_.all()) transfer_->drop_peer(node.index);
  ipc_.reset();
  tcp_server_.reset();
  pool_->remember_order();
  if (cold_->enabled()) cold_->tier().flush(Deadline::after_ms(kFlushMs));
}

void Engine::begin_serving() {
  serving_.store(true, std::memory_order_release);
  feed_.open();
}

void Engine::end_serving() {
  serving_.store(false, std::memory_order_release);
  feed_.close();
  if (fabric_) fabric_->responder().close();
}

void Engine::tell(std::span<const RecordRow> rows) {
  feed_.append(rows);
  if (rows.empty() || publish_alone(rows)) return;
  control_.tell(std::as_bytes(rows));
}

bool Engine::publish_alone(std::span<const RecordRow> rows) {
  if (!alone_.load(std::memory_order_acquire)) return false;
  shard_->apply(kSelfHolder, rows);
  pool_->mark_published(rows);
  return true;
}

void Engine::peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) {
  if (nodes_.incarnation(peer) != incarnation) return;  // that process is gone anyway
  nodes_.set_suspect(peer, true);
  const PeerTrouble event{incarnation, peer, what.token_unknown};
  std::vector<std::byte> payload(sizeof event + what.text.size());
  std::memcpy(payload.data(), &event, sizeof event);
  std::memcpy(payload.data() + sizeof event, what.text.data(), what.text.size());
  control_.post(EventKind::peer_trouble, payload);
}

std::shared_ptr<const Ring> Engine::ring() const {
  std::lock_guard lock(ring_mutex_);
  return ring_;
}

void Engine::set_ring(std::shared_ptr<const Ring> ring) {
  const auto shares = ring->shares();
  nodes_.close_owners();
  std::lock_guard lock(ring_mutex_);
  ring_ = std::move(ring);
  alone_.store(shares.size() == 1 && shares[0].first == kSelfHolder, std::memory_order_release);
}

uint16_t Engine::data_port() const { return tcp_server_ ? tcp_server_->port() : 0; }

HolderIndex Engine::add_node(const std::string& node_id, Incarnation incarnation) {
  const auto [index, is_new] = nodes_.add(
      node_id, incarnation, [&](HolderIndex candidate) { return shard_->swept(candidate); });
  if (is_new) {
    shard_->add_holder(index);
    fences_.admit(index);
  }
  return index;
}

void Engine::drop_node(HolderIndex index) {
  if (index == kSelfHolder) return;
  nodes_.drop(index);
  if (follower_) follower_->leave(index);
  if (copies_) copies_->forget(index);
  fences_.refuse(index);
  shard_->drop_holder(index);
  transfer_->drop_peer(index);
  locations_.forget_holder(index);
}

void Engine::connect_node(HolderIndex index, const PeerEndpoint& endpoint) {
  transfer_->add_peer(index, endpoint);
  nodes_.set_connected(index, true);
  if (follower_) follower_->follow(index, endpoint);
}

void Engine::admit_reader(const std::string& node_id, Incarnation incarnation,
                          const std::string& token) {
  std::lock_guard lock(readers_mutex_);
  readers_[{node_id, incarnation}] = token;
}

void Engine::expel_reader(const std::string& node_id, Incarnation incarnation) {
  {
    std::lock_guard lock(readers_mutex_);
    readers_.erase({node_id, incarnation});
  }
  if (tcp_server_) tcp_server_->drop_peer(node_id, incarnation);
  if (fabric_) fabric_->responder().drop_reader(node_id, incarnation);
}

bool Engine::raise_epoch(const Digest& namespace_id, uint64_t epoch) {
  uint32_t stale_slot = 0;
  if (!namespaces_.raise(namespace_id, epoch, stale_slot)) return false;
  if (!config_.disk.path.empty()) {
    std::lock_guard lock(janitor_mutex_);
    stale_on_disk_[namespace_id] = epoch;
  }
  if (stale_slot != 0) {
    quotas_->void_slot(stale_slot);
    sweep_namespace_later(stale_slot);
  }
  janitor_wake_.notify_one();
  return true;
}

void Engine::say_life(uint64_t view_number, uint64_t sequence, bool is_master,
                      std::chrono::milliseconds ms) {
  signs_.say({view_number, sequence, namespaces_.epochs_mark(), uint32_t{is_master}, 0},
             Clock::now() + ms);
}

void Engine::sweep_namespace_later(uint32_t pool_slot) {
  {
    std::lock_guard lock(janitor_mutex_);
    stale_namespaces_.push_back(pool_slot);
  }
  janitor_wake_.notify_one();
}

std::vector<RecordRow> Engine::local_rows(std::span<const Digest> digests) {
  std::vector<PinnedPage> pins(digests.size());
  pool_->pin(digests, nullptr, false, pins);
  std::vector<PinnedPage> held;
  std::copy_if(pins.begin(), pins.end(), std::back_inserter(held),
               [](const PinnedPage& pin) { return static_cast<bool>(pin); });
  std::vector<RecordRow> rows(held.size());
  pool_->rows_of(held, rows);
  pool_->unpin(held);
  for (RecordRow& row : rows) row.holder = kSelfHolder;
  return rows;
}

Engine::Removed Engine::begin_removal(std::span<const Digest> digests,
                                      std::vector<RecordRow>& rows) {
  if (!running_.begin(digests)) return Removed::too_many;
  const bool kept = remove_local(digests, rows);
  shard_->forget(digests);  // nobody names a page that is removed everywhere
  return kept ? Removed::kept : Removed::not_kept;
}

void Engine::end_removal(std::span<const Digest> digests) {
  if (copies_) copies_->removed(digests);  // before end(): no copy may name them in between
  running_.end(digests);
  // A lookup in flight may have cached them meanwhile.
  for (const Digest& digest : digests) locations_.forget(digest);
}

bool Engine::remove_local(std::span<const Digest> digests, std::vector<RecordRow>& rows) {
  for (const Digest& digest : digests) locations_.forget(digest);
  const bool kept = cold_->remove(digests, rows);
  // Records of pages set just before may be in flight. They must not arrive behind the withdrawals.
  commits_.wait();
  feed_.append(rows);
  return kept || write_removals_later();
}

bool Engine::drop_all() { return cold_->drop_all() || write_removals_later(); }

bool Engine::write_removals_later() {
  {
    std::lock_guard lock(janitor_mutex_);
    write_removals_ = true;
  }
  janitor_wake_.notify_one();
  return false;
}

std::vector<RecordRow> Engine::drop_from_pool(std::span<const Digest> digests) {
  std::vector<RecordRow> rows;
  pool_->remove(digests, rows);
  feed_.append(rows);
  return rows;
}

void Engine::hold_local(std::span<const Digest> digests, uint32_t hold_ms,
                        std::span<uint8_t> held) {
  holds_->hold(digests, Deadline::after_ms(std::min(hold_ms, kHoldMsMax)).at, held);
  {
    std::lock_guard lock(janitor_mutex_);
    look_at_holds_ = true;
  }
  janitor_wake_.notify_one();
}

std::pair<Generation, OwnerSummaries> Engine::pool_summaries() const {
  OwnerSummaries by_owner;
  auto ring = this->ring();
  if (!ring) return {0, std::move(by_owner)};
  const Generation as_of = cold_->scan(
      [&](std::span<const RecordRow> rows) { add_to_summaries(by_owner, rows, *ring); });
  return {as_of, std::move(by_owner)};
}

std::pair<Generation, std::vector<RecordRow>> Engine::pool_rows(
    HolderIndex owner, std::span<const uint8_t> buckets) const {
  std::vector<RecordRow> out;
  auto ring = this->ring();
  if (!ring) return {0, out};
  const Generation as_of = cold_->scan(
      [&](std::span<const RecordRow> rows) { append_owned(out, rows, *ring, owner, buckets); });
  return {as_of, std::move(out)};
}

std::vector<WorkerInfo> Engine::workers() const {
  return ipc_ ? ipc_->workers() : std::vector<WorkerInfo>{};
}

// Sweeps void pages (of cleared namespaces) and void records (of nodes that are gone). Also ends
// holds and retries journal entries.
void Engine::janitor() {
  std::unique_lock lock(janitor_mutex_);
  TimePoint holds_due = TimePoint::max(), removals_due = TimePoint::max();
  while (true) {
    const auto wanted = [&] {
      return stopping_ || look_at_holds_ || sweep_shard_ || write_removals_ ||
             !stale_namespaces_.empty() || !stale_on_disk_.empty();
    };
    const TimePoint due = std::min(holds_due, removals_due);
    if (due == TimePoint::max()) {
      janitor_wake_.wait(lock, wanted);
    } else {
      janitor_wake_.wait_until(lock, due, wanted);
    }
    if (stopping_) return;
    look_at_holds_ = false;
    const bool write_removals =
        std::exchange(write_removals_, false) || removals_due <= Clock::now();
    lock.unlock();
    holds_due = holds_->expire(Clock::now());
    if (write_removals)
      removals_due = cold_->write_waiting() ? TimePoint::max() : Clock::now() + kRetryRemovals;
    lock.lock();
    if (!stale_on_disk_.empty()) {
      const auto stale = std::exchange(stale_on_disk_, {});
      lock.unlock();
      cold_->drop_below(stale);
      lock.lock();
    } else if (!stale_namespaces_.empty()) {
      const uint32_t slot = stale_namespaces_.back();
      lock.unlock();
      std::vector<RecordRow> rows;
      const size_t freed = pool_->sweep_namespace(slot, kSweepPages, rows);
      cold_->left_pool(rows);
      lock.lock();
      if (freed == 0) std::erase(stale_namespaces_, slot);
    } else if (sweep_shard_) {
      sweep_shard_ = false;
      lock.unlock();
      bool more = shard_->sweep(kSweepRecords) > 0;
      if (copies_) more = copies_->sweep(kSweepRecords) > 0 || more;
      lock.lock();
      sweep_shard_ = sweep_shard_ || more;
    }
  }
}

}  // namespace peercached
