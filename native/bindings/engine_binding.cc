// The engine for Python: construction, workers, events, figures. The other files of this folder
// bind the rest, by subject.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/packed.h"
#include "engine/engine.h"

namespace peercached {

namespace {

struct EpochRow {
  Digest namespace_id;
  uint64_t epoch;
};
static_assert(sizeof(EpochRow) == 24);

Key128 key128(const nb::bytes& packed) {
  Key128 key;
  if (packed.size() != key.size()) {
    throw std::invalid_argument("cluster_key: 16 bytes are wanted, not " +
                                std::to_string(packed.size()));
  }
  std::memcpy(key.data(), packed.c_str(), key.size());
  return key;
}

Verify verify_of(const std::string& text) {
  if (text == "checksum") return Verify::checksum;
  if (text == "header") return Verify::header;
  throw std::invalid_argument("verify: '" + text + "' is neither checksum nor header");
}

Protocol protocol_of(const std::string& text) {
  if (text == "auto") return Protocol::automatic;
  if (text == "rdma") return Protocol::rdma;
  if (text == "tcp") return Protocol::tcp;
  throw std::invalid_argument("protocol: '" + text + "' is none of auto, rdma, tcp");
}

SyncPolicy sync_of(const std::string& text) {
  if (text == "never") return SyncPolicy::never;
  if (text == "segment") return SyncPolicy::segment;
  if (text == "batch") return SyncPolicy::batch;
  throw std::invalid_argument("disk_sync: '" + text + "' is none of never, segment, batch");
}

void construct(Engine* self, const std::string& node_id, Incarnation incarnation,
               const std::string& socket_path, uint32_t socket_mode, const nb::bytes& cluster_key,
               uint64_t pool_bytes, bool huge_pages, const std::string& pool_file,
               const nb::bytes& epochs, const std::string& why_epochs_unknown,
               const std::string& removals_path, uint64_t shard_entries, uint64_t copied_records,
               unsigned follow_wait_ms, uint64_t location_cache_entries, const std::string& verify,
               const std::string& data_host, uint16_t data_port, bool data_sealed,
               unsigned channels_per_peer, unsigned copy_threads, unsigned workers_max,
               const std::string& faults, const std::string& protocol,
               const std::vector<std::string>& device_names, int rdma_gid_index, int rdma_mtu,
               uint8_t rdma_service_level, uint8_t rdma_traffic_class, uint8_t rdma_hop_limit,
               uint16_t rdma_pkey, uint8_t rdma_timeout, uint8_t rdma_retry_count,
               unsigned rdma_rd_atomic, const std::string& disk_path, uint64_t disk_bytes,
               const std::string& disk_sync) {
  EngineConfig config;
  config.node_id = node_id;
  config.incarnation = incarnation;
  config.version = PEERCACHED_VERSION;
  config.socket_path = socket_path;
  config.socket_mode = socket_mode;
  config.cluster_key = key128(cluster_key);
  config.pool_bytes = pool_bytes;
  config.huge_pages = huge_pages;
  config.pool_file = pool_file;
  for (const EpochRow& row : unpack<EpochRow>(epochs, "epochs")) {
    config.epochs.emplace_back(row.namespace_id, row.epoch);
  }
  config.why_epochs_unknown = why_epochs_unknown;
  config.removals_path = removals_path;
  config.shard_entries = shard_entries;
  config.copied_records = copied_records;
  config.follow_wait_ms = follow_wait_ms;
  config.location_cache_entries = location_cache_entries;
  config.verify = verify_of(verify);
  config.data_host = data_host;
  config.data_port = data_port;
  config.data_sealed = data_sealed;
  config.channels_per_peer = channels_per_peer;
  config.copy_threads = copy_threads;
  config.workers_max = workers_max;
  config.faults = faults;
  config.protocol = protocol_of(protocol);
  config.device_names = device_names;
  config.gid_index = rdma_gid_index;
  config.link = {rdma_mtu,  rdma_service_level, rdma_traffic_class, rdma_hop_limit,
                 rdma_pkey, rdma_timeout,       rdma_retry_count,   rdma_rd_atomic};
  config.disk.path = disk_path;
  config.disk.size_bytes = disk_bytes;
  config.disk.sync = sync_of(disk_sync);
  nb::gil_scoped_release unlocked;
  new (self) Engine(config);
}

void set_quotas(
    Engine& engine,
    const std::vector<std::tuple<std::string, uint64_t, std::optional<uint64_t>>>& rules) {
  std::vector<QuotaRule> all;
  for (const auto& [pattern, pool_bytes, disk_bytes] : rules) {
    all.push_back({pattern, pool_bytes, disk_bytes});
  }
  engine.storage().quotas().set_rules(std::move(all));
}

nb::object parse_json(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(text.c_str());
}

nb::list take_events(Engine& engine, size_t limit) {
  const std::vector<Event> events = unlocked([&] { return engine.control().take(limit); });
  const TimePoint now = Clock::now();
  nb::list list;
  for (const Event& event : events) {
    const double left =
        event.ticket == 0
            ? 0.0
            : std::max(0.0, std::chrono::duration<double>(event.deadline - now).count());
    list.append(
        nb::make_tuple(static_cast<int>(event.kind), event.ticket, left, pack(event.payload)));
  }
  return list;
}

void answer(Engine& engine, uint64_t ticket, const nb::bytes& payload) {
  auto bytes = unpack<std::byte>(payload, "payload");
  unlocked([&] { engine.control().answer(ticket, std::move(bytes)); });
}

nb::list workers(Engine& engine) {
  nb::list list;
  for (const WorkerInfo& worker : engine.workers().list()) {
    nb::dict one;
    one["attachment"] = worker.attachment;
    one["pid"] = worker.pid;
    one["uid"] = worker.uid;
    one["name"] = worker.name;
    one["namespace"] = worker.ns;
    one["connections"] = worker.connections;
    one["regions"] = worker.regions;
    one["region_bytes"] = worker.region_bytes;
    one["requests"] = worker.requests;
    one["given_up"] = worker.given_up;
    one["stuck"] = worker.stuck;
    list.append(one);
  }
  return list;
}

nb::object stats(Engine& engine) {
  return parse_json(unlocked([&] { return engine.operator_view().status_json(); }));
}

nb::list latencies(Engine& engine) {
  nb::list list;
  for (const NamedLatency& one : unlocked([&] { return engine.operator_view().latencies(); })) {
    list.append(nb::make_tuple(one.kind, one.label, one.counts.sum_ns,
                               pack(std::span<const uint64_t>(one.counts.counts))));
  }
  return list;
}

nb::list latency_bounds_us() {
  nb::list bounds;
  for (size_t i = 0; i + 1 < kLatencyBuckets; ++i) bounds.append(latency_bound_us(i));
  return bounds;
}

}  // namespace

void bind_engine(nb::module_& module) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Engine> engine(module, "Engine");
  engine
      .def("__init__", &construct, nb::kw_only(), nb::arg("node_id"), nb::arg("incarnation"),
           nb::arg("socket_path"), nb::arg("socket_mode"), nb::arg("cluster_key"),
           nb::arg("pool_bytes"), nb::arg("huge_pages"), nb::arg("pool_file") = "",
           nb::arg("epochs") = nb::bytes("", 0), nb::arg("why_epochs_unknown") = "",
           nb::arg("removals_path") = "", nb::arg("shard_entries"), nb::arg("copied_records"),
           nb::arg("follow_wait_ms") = 2000, nb::arg("location_cache_entries"), nb::arg("verify"),
           nb::arg("data_host"), nb::arg("data_port"), nb::arg("data_sealed") = false,
           nb::arg("channels_per_peer"), nb::arg("copy_threads"), nb::arg("workers_max"),
           nb::arg("faults"), nb::arg("protocol"), nb::arg("device_names"),
           nb::arg("rdma_gid_index"), nb::arg("rdma_mtu"), nb::arg("rdma_service_level"),
           nb::arg("rdma_traffic_class"), nb::arg("rdma_hop_limit"), nb::arg("rdma_pkey"),
           nb::arg("rdma_timeout"), nb::arg("rdma_retry_count"), nb::arg("rdma_rd_atomic"),
           nb::arg("disk_path"), nb::arg("disk_bytes"), nb::arg("disk_sync"))
      .def(
          "guard_workers",
          [](Engine& self, int64_t socket_group, std::vector<uint32_t> users,
             std::vector<uint32_t> groups) {
            self.workers().guard(socket_group, std::move(users), std::move(groups));
          },
          nb::arg("socket_group"), nb::arg("users"), nb::arg("groups"))
      .def("set_quotas", &set_quotas, nb::arg("rules"))
      .def("take_notices", [](Engine& self) { return self.operator_view().take_notices(); })
      .def("listen", &Engine::listen, Unlocked())
      .def("start", &Engine::start, Unlocked())
      .def("stop", &Engine::stop, Unlocked())
      .def_prop_ro("event_fd", [](Engine& self) { return self.control().event_fd(); })
      .def_prop_ro("data_port", [](Engine& self) { return self.readers().port(); })
      .def_prop_ro("rails", [](Engine& self) { return self.transports().rails().size(); })
      .def("transport", [](Engine& self) { return parse_json(self.transports().status_json()); })
      .def("take_events", &take_events, nb::arg("limit") = 256)
      .def("answer", &answer, nb::arg("ticket"), nb::arg("payload"))
      .def(
          "give_up", [](Engine& self, uint64_t ticket) { self.control().give_up(ticket); },
          Unlocked(), nb::arg("ticket"))
      .def("workers", &workers)
      .def("stats", &stats)
      .def("latencies", &latencies);
  bind_peers(engine);
  bind_pages(engine);
  bind_removals(engine);
  bind_namespaces(engine);
  bind_directory(engine);
  bind_operator(engine);
  module.def("latency_bounds_us", &latency_bounds_us);
}

}  // namespace peercached
