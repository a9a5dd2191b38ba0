#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "common/fault_guard.h"
#include "device/cuda.h"
#include "device/stand_in.h"
#include "engine/records/follow_answers.h"

namespace peercached {

namespace {

constexpr size_t kEventsMax = 16'384;
constexpr size_t kEventBytesMax = 64 << 20;

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
          config.shard_entries + config.copied_records, [this] { janitor_.sweep_records(); },
          nodes_, running_, counters_),
      storage_(config, janitor_,
               [this](std::span<const RecordRow> rows) { publisher_->append(rows); }),
      transports_(config, storage_.pool(), nodes_, control_),
      locations_(config.location_cache_entries, running_),
      speeds_(config.incarnation),
      offers_{storage_.pool(), storage_.namespaces()},
      crew_(copy_helpers(config.copy_threads)),
      verifier_(config.verify),
      readers_(transports_),
      growth_(storage_.pool(), transports_, notices_) {
  install_fault_guard();
  publisher_ = std::make_unique<Publisher>(
      Publisher::Parts{nodes_, directory_, control_, transports_.engine(), transports_, counters_});
  if (config.kv_events_port != 0)
    page_events_ = std::make_unique<PageEvents>(
        PageEvents::Parts{serving_, nodes_, directory_, *publisher_, storage_},
        config.kv_events_of == EventsOf::all);
  storage_.begin_withdrawing();
  local_pages_ =
      std::make_unique<LocalPages>(LocalPages{storage_.pool(), storage_.disk(), storage_.promoter(),
                                              storage_.holds(), janitor_, counters_, latencies_});
  hinted_pages_ = std::make_unique<HintedPages>(HintedPages{
      storage_.pool(), storage_.disk(), storage_.namespaces(), storage_.retains(), janitor_});
  directory_.set_own_records(
      [this](std::span<const Digest> digests) { return own_records(digests); });
  removals_ = std::make_unique<Removals>(
      Removals{running_, storage_.pool(), storage_.disk(), locations_, *publisher_, janitor_});
  adopter_ = std::make_unique<Adopter>(Adopter::Parts{
      serving_, storage_.pool(), storage_.disk(), storage_.namespaces(), hot_reads_.hot(), running_,
      nodes_, transports_, verifier_, *publisher_, janitor_, counters_});
  make_devices();
  make_paths();
  peers_ = std::make_unique<Peers>(
      Peers::Parts{nodes_, storage_.namespaces(), directory_, locations_, transports_},
      std::chrono::milliseconds(config.follow_wait_ms), config.copied_records != 0);
  operator_view_ = std::make_unique<OperatorView>(
      OperatorView::Parts{config_, storage_, transports_, directory_, locations_, nodes_, workers_,
                          readers_, control_, counters_, latencies_, devices_.get(), notices_});
  janitor_.start({storage_.pool(), storage_.disk(), storage_.holds(), storage_.retains(),
                  directory_.records()});
}

void Engine::make_devices() {
  if (config_.gpu == Gpus::stand_in) devices_ = device::make_stand_in();
  try {
    if (config_.gpu == Gpus::cuda) devices_ = device::make_cuda();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("gpu = \"cuda\": ") + error.what() +
                             " (gpu = \"off\" would go on without)");
  }
  bounce_ = std::make_unique<Bounce>(transports_, devices_.get());
}

std::shared_ptr<device::Memory> Engine::import_device(const device::Handle& handle) {
  if (!devices_)
    throw std::runtime_error("this daemon copies no memory of GPUs: set gpu = \"cuda\"");
  auto memory = devices_->import(handle);
  std::call_once(has_device_, [this] {
    Pool& pool = storage_.pool();
    pinning_ = std::make_unique<device::Pinning>(*devices_, pool.base(), pool.size_bytes());
  });
  return memory;
}

void Engine::make_paths() {
  locator_ = std::make_unique<Locator>(Locator{nodes_, directory_, locations_, speeds_, running_,
                                               transports_.engine(), transports_, counters_});
  prefixes_ = std::make_unique<Prefixes>(
      Prefixes{serving_, storage_.pool(), storage_.disk(), nodes_, directory_.records(), running_});
  const SetPieces pieces{storage_.pool(),      storage_.disk(),    running_, *publisher_, nodes_,
                         directory_.records(), storage_.objects(), fresh_,   crew_,       counters_,
                         devices_.get()};
  set_path_ = std::make_unique<SetPath>(SetPath{
      serving_, pieces, janitor_, page_events_ ? &page_events_->picture() : nullptr, latencies_});
  const GetHere here{storage_.pool(), storage_.disk(), storage_.promoter(), *local_pages_,
                     crew_,           load_times_,     devices_.get()};
  const PeerReads reads{nodes_,     transports_.engine(), verifier_, speeds_,       load_times_,
                        hot_reads_, used_pages_,          *adopter_, devices_.get()};
  get_path_ = std::make_unique<GetPath>(GetPath{serving_,
                                                running_,
                                                locations_,
                                                here,
                                                {here, {*locator_, control_, running_, reads}},
                                                {here, storage_.objects(), control_},
                                                *bounce_,
                                                counters_,
                                                latencies_});
  const ExistsLook look{storage_.pool(), storage_.disk(),    *locator_,
                        nodes_,          storage_.objects(), control_};
  const ExistsWarm warm{storage_.promoter(), control_, warm_wishes_};
  const ExistsHold hold{*local_pages_, locations_, nodes_, transports_.engine()};
  exists_path_ = std::make_unique<ExistsPath>(
      ExistsPath{serving_, look, warm, hold, load_times_, counters_, latencies_});
}

Engine::~Engine() {
  stop();
  janitor_.stop();
  storage_.end();
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
  answers.may_read = [this] { return serving_.on(); };
  answers.hold = std::bind_front(&LocalPages::hold, local_pages_.get());
  answers.lookup = std::bind_front(&Directory::lookup, &directory_);
  answers.push = std::bind_front(&Directory::take, &directory_);
  answers.follow = std::make_shared<FollowAnswers>(
      FollowAnswers::Parts{publisher_->feed(), peers_->signs(), storage_.disk(), directory_});
  readers_.listen(server, storage_.pool(), answers);
}

void Engine::bind_workers() { workers_.bind(config_, notices_, *this); }

void Engine::start() {
  listen();
  bind_workers();
  workers_.serve();
}

void Engine::stop() {
  // Requests in flight end now and not at their deadlines: nobody answers them any more.
  control_.close();
  directory_.arrivals().close();
  publisher_->feed().close();
  peers_->stop();
  workers_.close();
  readers_.close();
  storage_.flush();
}

void Engine::set_ring(std::shared_ptr<const Ring> ring) {
  std::vector<Incarnation> members;
  for (const NodeTable::Node& node : nodes_.all()) {
    if (node.index != kSelfHolder) members.push_back(node.incarnation);
  }
  std::vector<Incarnation> owners;
  for (const auto& [owner, share] : ring->shares()) {
    if (owner != kSelfHolder) owners.push_back(nodes_.incarnation(owner));
  }
  const uint64_t view_number = ring->view_number();
  const bool all = peers_->may_store_all(members.size());
  directory_.set_ring(std::move(ring), all);
  publisher_->feed().set_view(view_number, members);
  publisher_->feed().set_owners(owners);
  peers_->ring_changed(all);
}

std::vector<RecordRow> Engine::own_records(std::span<const Digest> digests) const {
  return serving_.on() ? local_pages_->records(digests) : std::vector<RecordRow>();
}

void Engine::begin_serving() {
  serving_.begin();
  publisher_->feed().open();
}

void Engine::end_serving() {
  serving_.end();
  publisher_->feed().close();
  transports_.admit_readers(false);
}

void Engine::set_paused(bool paused) {
  serving_.pause(paused);
  transports_.admit_readers(serving_.on());
}

}  // namespace peercached
