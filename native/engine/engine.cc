#include "engine/engine.h"

#include <algorithm>
#include <future>
#include <iterator>

#include "common/fault_guard.h"
#include "engine/follow_answers.h"

namespace peercached {

namespace {

constexpr size_t kEventsMax = 16'384;
constexpr size_t kEventBytesMax = 64 << 20;
constexpr size_t kHoldsMax = 1 << 18;
constexpr uint64_t kHoldsShare = 4;        // at most 1/4 of the pool may be held
constexpr uint64_t kWriteBehindShare = 4;  // at most 1/4 of the pool may wait to be written
constexpr uint64_t kWriteBehindBytesMax = 512 << 20;
constexpr int64_t kFlushMs = 2'000;  // time for the disk when we stop

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
      directory_(
          config.shard_entries, [this] { janitor_.sweep_records(); }, nodes_, counters_),
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
  cold_ = std::make_unique<ColdPages>(
      *pool_, namespaces_, journal_,
      [this](std::span<const RecordRow> rows) { publisher_->tell(rows); });
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
  if (config.copied_records != 0) {
    copies_ = std::make_unique<Copies>(config.copied_records, [this] { janitor_.sweep_records(); });
  }

  transport_ = std::make_unique<Transport>(config, *pool_, nodes_, control_);
  publisher_ = std::make_unique<Publisher>(
      Publisher::Parts{*pool_, nodes_, directory_, control_, transport_->tcp(), counters_});
  cold_pages_.store(cold_.get(), std::memory_order_release);
  peers_ = std::make_unique<Peers>(
      Peers::Parts{nodes_, namespaces_, directory_, locations_, copies_.get(), *transport_},
      std::chrono::milliseconds(config.follow_wait_ms));
  readers_ = std::make_unique<Readers>(*transport_);

  janitor_.start({*pool_, *cold_, *holds_, directory_.shard(), copies_.get()});
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
  peers_.reset();  // before the copies, into which they are followed
  janitor_.stop();
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
  if (readers_->port() != 0) return;
  TcpServerConfig server;
  server.host = config_.data_host;
  server.port = config_.data_port;
  server.sealed = config_.data_sealed;
  server.incarnation = config_.incarnation;
  server.notices = &notices_;
  TcpServer::Answers answers;
  answers.may_read = [this] { return serving_.load(std::memory_order_acquire); };
  answers.hold = [this](std::span<const Digest> digests, uint32_t hold_ms,
                        std::span<uint8_t> held) { hold_local(digests, hold_ms, held); };
  answers.lookup = [this](std::span<const Digest> digests, uint64_t view_number,
                          tcp::Located& located) {
    directory_.lookup(digests, view_number, located);
  };
  answers.publish = [this](Incarnation holder, uint64_t fence, std::span<const RecordRow> rows) {
    return directory_.store(holder, fence, rows);
  };
  answers.follow = [follow = FollowAnswers{publisher_->feed(), peers_->signs(), *cold_}](
                       Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                       uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell) {
    return follow.answer(follower, sign, position, wait_ms, tell);
  };
  readers_->listen(server, *pool_, answers);
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
  publisher_->feed().close();
  peers_->disconnect_all();
  ipc_.reset();
  readers_->close();
  pool_->remember_order();
  if (cold_->enabled()) cold_->tier().flush(Deadline::after_ms(kFlushMs));
}

void Engine::begin_serving() {
  serving_.store(true, std::memory_order_release);
  publisher_->feed().open();
}

void Engine::end_serving() {
  serving_.store(false, std::memory_order_release);
  publisher_->feed().close();
  transport_->drop_readers();
}

bool Engine::raise_epoch(const Digest& namespace_id, uint64_t epoch) {
  uint32_t stale_slot = 0;
  if (!namespaces_.raise(namespace_id, epoch, stale_slot)) return false;
  if (!config_.disk.path.empty()) janitor_.drop_from_disk(namespace_id, epoch);
  if (stale_slot != 0) {
    quotas_->void_slot(stale_slot);
    janitor_.sweep_namespace(stale_slot);
  }
  return true;
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
  directory_.shard().forget(digests);  // nobody names a page that is removed everywhere
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
  publisher_->commits().wait();
  publisher_->feed().append(rows);
  if (!kept) janitor_.write_removals();
  return kept;
}

bool Engine::drop_all() {
  const bool kept = cold_->drop_all();
  if (!kept) janitor_.write_removals();
  return kept;
}

std::vector<RecordRow> Engine::drop_from_pool(std::span<const Digest> digests) {
  std::vector<RecordRow> rows;
  pool_->remove(digests, rows);
  publisher_->feed().append(rows);
  return rows;
}

void Engine::hold_local(std::span<const Digest> digests, uint32_t hold_ms,
                        std::span<uint8_t> held) {
  holds_->hold(digests, Deadline::after_ms(std::min(hold_ms, kHoldMsMax)).at, held);
  janitor_.watch_holds();
}

std::pair<Generation, OwnerSummaries> Engine::pool_summaries() const {
  OwnerSummaries by_owner;
  const auto ring = directory_.ring();
  if (!ring) return {0, std::move(by_owner)};
  const Generation as_of = cold_->scan(
      [&](std::span<const RecordRow> rows) { add_to_summaries(by_owner, rows, *ring); });
  return {as_of, std::move(by_owner)};
}

std::pair<Generation, std::vector<RecordRow>> Engine::pool_rows(
    HolderIndex owner, std::span<const uint8_t> buckets) const {
  std::vector<RecordRow> out;
  const auto ring = directory_.ring();
  if (!ring) return {0, out};
  const Generation as_of = cold_->scan(
      [&](std::span<const RecordRow> rows) { append_owned(out, rows, *ring, owner, buckets); });
  return {as_of, std::move(out)};
}

std::vector<WorkerInfo> Engine::workers() const {
  return ipc_ ? ipc_->workers() : std::vector<WorkerInfo>{};
}

}  // namespace peercached
