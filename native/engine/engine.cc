#include "engine/engine.h"

#include <algorithm>
#include <iterator>

#include "common/fault_guard.h"
#include "engine/follow_answers.h"

namespace peercached {

namespace {

constexpr size_t kEventsMax = 16'384;
constexpr size_t kEventBytesMax = 64 << 20;
constexpr unsigned kConnectionsMin = 256;

unsigned copy_helpers(unsigned threads) {
  if (threads == 0) {
    // One core nearly fills the memory bus; beyond four threads nothing is gained.
    threads = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 4u);
  }
  return threads - 1;
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : config_(config),
      control_(kEventsMax, kEventBytesMax),
      nodes_(config.node_id, config.incarnation),
      directory_(
          config.shard_entries, [this] { janitor_.sweep_records(); }, nodes_, counters_),
      storage_(config, janitor_,
               [this](std::span<const RecordRow> rows) { publisher_->tell(rows); }),
      transport_(config, storage_.pool(), nodes_, control_),
      locations_(config.location_cache_entries, running_),
      readers_(transport_),
      crew_(copy_helpers(config.copy_threads)),
      verifier_(config.verify) {
  install_fault_guard();
  if (config.copied_records != 0) {
    copies_ = std::make_unique<Copies>(config.copied_records, [this] { janitor_.sweep_records(); });
  }
  publisher_ = std::make_unique<Publisher>(
      Publisher::Parts{storage_.pool(), nodes_, directory_, control_, transport_.tcp(), counters_});
  storage_.begin_telling();
  locator_ =
      std::make_unique<Locator>(Locator::Parts{nodes_, directory_, locations_, copies_.get(),
                                               running_, control_, transport_.tcp(), counters_});
  peers_ = std::make_unique<Peers>(Peers::Parts{nodes_, storage_.namespaces(), directory_,
                                                locations_, copies_.get(), transport_},
                                   std::chrono::milliseconds(config.follow_wait_ms));
  janitor_.start(
      {storage_.pool(), storage_.cold(), storage_.holds(), directory_.shard(), copies_.get()});
}

Engine::~Engine() {
  stop();
  peers_.reset();  // follows into the copies
  janitor_.stop();
  storage_.end();
}

void Engine::guard_workers(int64_t socket_group, std::vector<uint32_t> users,
                           std::vector<uint32_t> groups) {
  socket_group_ = socket_group;
  admission_.users = std::move(users);
  admission_.groups = std::move(groups);
}

void Engine::listen() {
  if (readers_.port() != 0) return;
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
  answers.follow = [follow = FollowAnswers{publisher_->feed(), peers_->signs(), storage_.cold()}](
                       Incarnation follower, const tcp::LifeSign& sign, uint64_t position,
                       uint32_t wait_ms, const std::function<bool(const tcp::Followed&)>& tell) {
    return follow.answer(follower, sign, position, wait_ms, tell);
  };
  readers_.listen(server, storage_.pool(), answers);
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
  readers_.close();
  storage_.flush();
}

void Engine::begin_serving() {
  serving_.store(true, std::memory_order_release);
  publisher_->feed().open();
}

void Engine::end_serving() {
  serving_.store(false, std::memory_order_release);
  publisher_->feed().close();
  transport_.drop_readers();
}

std::vector<RecordRow> Engine::local_rows(std::span<const Digest> digests) {
  std::vector<PinnedPage> pins(digests.size());
  storage_.pool().pin(digests, nullptr, false, pins);
  std::vector<PinnedPage> held;
  std::copy_if(pins.begin(), pins.end(), std::back_inserter(held),
               [](const PinnedPage& pin) { return static_cast<bool>(pin); });
  std::vector<RecordRow> rows(held.size());
  storage_.pool().rows_of(held, rows);
  storage_.pool().unpin(held);
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
  const bool kept = storage_.cold().remove(digests, rows);
  // Records of pages set just before may be in flight. They must not arrive behind the withdrawals.
  publisher_->commits().wait();
  publisher_->feed().append(rows);
  if (!kept) janitor_.write_removals();
  return kept;
}

bool Engine::drop_all() {
  const bool kept = storage_.cold().drop_all();
  if (!kept) janitor_.write_removals();
  return kept;
}

std::vector<RecordRow> Engine::drop_from_pool(std::span<const Digest> digests) {
  std::vector<RecordRow> rows;
  storage_.pool().remove(digests, rows);
  publisher_->feed().append(rows);
  return rows;
}

void Engine::hold_local(std::span<const Digest> digests, uint32_t hold_ms,
                        std::span<uint8_t> held) {
  storage_.holds().hold(digests, Deadline::after_ms(std::min(hold_ms, kHoldMsMax)).at, held);
  janitor_.watch_holds();
}

std::pair<Generation, OwnerSummaries> Engine::pool_summaries() const {
  OwnerSummaries by_owner;
  const auto ring = directory_.ring();
  if (!ring) return {0, std::move(by_owner)};
  const Generation as_of = storage_.cold().scan(
      [&](std::span<const RecordRow> rows) { add_to_summaries(by_owner, rows, *ring); });
  return {as_of, std::move(by_owner)};
}

std::pair<Generation, std::vector<RecordRow>> Engine::pool_rows(
    HolderIndex owner, std::span<const uint8_t> buckets) const {
  std::vector<RecordRow> out;
  const auto ring = directory_.ring();
  if (!ring) return {0, out};
  const Generation as_of = storage_.cold().scan(
      [&](std::span<const RecordRow> rows) { append_owned(out, rows, *ring, owner, buckets); });
  return {as_of, std::move(out)};
}

std::vector<WorkerInfo> Engine::workers() const {
  return ipc_ ? ipc_->workers() : std::vector<WorkerInfo>{};
}

}  // namespace peercached
