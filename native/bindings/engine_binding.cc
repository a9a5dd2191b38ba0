// The engine for Python: construction, workers, figures. The other files of this folder bind the
// rest, by subject.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/packed.h"
#include "engine/engine.h"

namespace peercached {

namespace {

Key128 key128(const nb::bytes& packed) {
  Key128 key;
  if (packed.size() != key.size()) {
    throw std::invalid_argument("cluster_key: 16 bytes are wanted, not " +
                                std::to_string(packed.size()));
  }
  std::memcpy(key.data(), packed.c_str(), key.size());
  return key;
}

void construct(Engine* self, nb::handle keys, Incarnation incarnation, const nb::bytes& cluster_key,
               const nb::dict& epochs, const std::string& why_epochs_unknown,
               const std::string& removals_path, unsigned follow_wait_ms) {
  EngineConfig config = config_of(keys);
  config.incarnation = incarnation;
  config.cluster_key = key128(cluster_key);
  for (const auto& [namespace_id, epoch] : epochs) {
    config.epochs.emplace_back(unpack_digest(nb::cast<nb::bytes>(namespace_id)),
                               nb::cast<uint64_t>(epoch));
  }
  config.why_epochs_unknown = why_epochs_unknown;
  config.removals_path = removals_path;
  config.follow_wait_ms = follow_wait_ms;
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
  unlocked([&] { engine.storage().quotas().set_rules(std::move(all)); });
}

nb::object parse_json(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(text.c_str());
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
    one["idle_s"] = worker.idle.count();
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

nb::dict own_transports(Engine& engine) {
  nb::dict told;
  for (const auto& [name, offer] : engine.transports().offers()) {
    told[name.c_str()] = nb::bytes(offer.data(), offer.size());
  }
  return told;
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
      .def("__init__", &construct, nb::arg("config"), nb::kw_only(), nb::arg("incarnation"),
           nb::arg("cluster_key"), nb::arg("epochs"), nb::arg("why_epochs_unknown"),
           nb::arg("removals_path"), nb::arg("follow_wait_ms"))
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
      .def("bind_workers", &Engine::bind_workers, Unlocked())
      .def("start", &Engine::start, Unlocked())
      .def("stop", &Engine::stop, Unlocked())
      .def_prop_ro("data_port", [](Engine& self) { return self.readers().port(); })
      .def_prop_ro("own_transports", &own_transports)
      .def("transport", [](Engine& self) { return parse_json(self.transports().status_json()); })
      .def("workers", &workers)
      .def("stats", &stats)
      .def("latencies", &latencies);
  bind_peers(engine);
  bind_pages(engine);
  bind_pins(engine);
  bind_hints(engine);
  bind_removals(engine);
  bind_store(engine);
  bind_namespaces(engine);
  bind_directory(engine);
  bind_operator(engine);
  bind_traces(engine);
  bind_kv_events(engine);
  bind_events(module, engine);
  module.attr("CONFIG_KEYS") = config_keys();
  module.def("latency_bounds_us", &latency_bounds_us);
}

}  // namespace peercached
