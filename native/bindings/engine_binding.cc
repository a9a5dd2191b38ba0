#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bindings/packed.h"
#include "bindings/shard_calls.h"
#include "engine/engine.h"

namespace peercached {

namespace {

constexpr size_t kTokenBytes = 32;

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

std::string token_of(const nb::bytes& packed) {
  if (packed.size() != kTokenBytes) {
    throw std::invalid_argument("token: 32 bytes are wanted, not " + std::to_string(packed.size()));
  }
  return {packed.c_str(), packed.size()};
}

Verify verify_of(const std::string& text) {
  if (text == "checksum") return Verify::checksum;
  if (text == "header") return Verify::header;
  throw std::invalid_argument("verify: '" + text + "' is neither checksum nor header");
}

void check_namespace(const std::string& name) {
  if (name.size() > kNamespaceBytesMax) {
    throw std::invalid_argument("namespace: " + std::to_string(name.size()) + " bytes, " +
                                std::to_string(kNamespaceBytesMax) + " are the limit");
  }
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

// What a peer offers is bounded here, before anything is made for it.
std::vector<RecordRow> handover_rows(const nb::bytes& packed) {
  auto rows = unpack<RecordRow>(packed, "rows");
  if (rows.size() > kHandoverPages) {
    throw std::invalid_argument("rows: " + std::to_string(rows.size()) + " pages at once, " +
                                std::to_string(kHandoverPages) + " are the limit");
  }
  for (const RecordRow& row : rows) {
    if (row.length == 0 || row.length > kHandoverPageBytesMax) {
      throw std::invalid_argument("rows: a page of " + std::to_string(row.length) + " bytes, 1.." +
                                  std::to_string(kHandoverPageBytesMax) + " can be handed over");
    }
  }
  return rows;
}

nb::object parse_json(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(text.c_str());
}

nb::list take_events(Engine& engine, size_t limit) {
  std::vector<Event> events;
  {
    nb::gil_scoped_release unlocked;
    events = engine.control().take(limit);
  }
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

nb::list workers(const Engine& engine) {
  nb::list list;
  for (const WorkerInfo& worker : engine.workers()) {
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

}  // namespace

void bind_engine(nb::module_& module) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Engine> engine(module, "Engine");
  bind_operator(engine);
  bind_directory(engine);
  engine
      .def(
          "__init__",
          [](Engine* self, const std::string& node_id, Incarnation incarnation,
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
          },
          nb::kw_only(), nb::arg("node_id"), nb::arg("incarnation"), nb::arg("socket_path"),
          nb::arg("socket_mode"), nb::arg("cluster_key"), nb::arg("pool_bytes"),
          nb::arg("huge_pages"), nb::arg("pool_file") = "", nb::arg("epochs") = nb::bytes("", 0),
          nb::arg("why_epochs_unknown") = "", nb::arg("removals_path") = "",
          nb::arg("shard_entries"), nb::arg("copied_records"), nb::arg("follow_wait_ms") = 2000,
          nb::arg("location_cache_entries"), nb::arg("verify"), nb::arg("data_host"),
          nb::arg("data_port"), nb::arg("data_sealed") = false, nb::arg("channels_per_peer"),
          nb::arg("copy_threads"), nb::arg("workers_max"), nb::arg("faults"), nb::arg("protocol"),
          nb::arg("device_names"), nb::arg("rdma_gid_index"), nb::arg("rdma_mtu"),
          nb::arg("rdma_service_level"), nb::arg("rdma_traffic_class"), nb::arg("rdma_hop_limit"),
          nb::arg("rdma_pkey"), nb::arg("rdma_timeout"), nb::arg("rdma_retry_count"),
          nb::arg("rdma_rd_atomic"), nb::arg("disk_path"), nb::arg("disk_bytes"),
          nb::arg("disk_sync"))
      .def("guard_workers", &Engine::guard_workers, nb::arg("socket_group"), nb::arg("users"),
           nb::arg("groups"))
      .def(
          "set_quotas",
          [](Engine& self,
             const std::vector<std::tuple<std::string, uint64_t, std::optional<uint64_t>>>& rules) {
            std::vector<QuotaRule> all;
            for (const auto& [pattern, pool_bytes, disk_bytes] : rules)
              all.push_back({pattern, pool_bytes, disk_bytes});
            self.set_quotas(std::move(all));
          },
          nb::arg("rules"))
      .def("take_notices", &Engine::take_notices)
      .def("listen", &Engine::listen, Unlocked())
      .def("start", &Engine::start, Unlocked())
      .def("stop", &Engine::stop, Unlocked())
      .def_prop_ro("event_fd", [](Engine& self) { return self.control().event_fd(); })
      .def_prop_ro("data_port", &Engine::data_port)
      .def_prop_ro("rails", &Engine::rails)
      .def("transport", [](Engine& self) { return parse_json(self.transport_json()); })
      .def("take_events", &take_events, nb::arg("limit") = 256)
      .def(
          "answer",
          [](Engine& self, uint64_t ticket, const nb::bytes& payload) {
            auto bytes = unpack<std::byte>(payload, "payload");
            nb::gil_scoped_release unlocked;
            self.control().answer(ticket, std::move(bytes));
          },
          nb::arg("ticket"), nb::arg("payload"))
      .def(
          "give_up", [](Engine& self, uint64_t ticket) { self.control().give_up(ticket); },
          Unlocked(), nb::arg("ticket"))

      .def("add_node", &Engine::add_node, Unlocked(), nb::arg("node_id"), nb::arg("incarnation"))
      .def("drop_node", &Engine::drop_node, Unlocked(), nb::arg("index"))
      .def(
          "connect_node",
          [](Engine& self, HolderIndex index, const std::string& host, uint16_t port,
             const nb::bytes& token, Incarnation incarnation, unsigned rails, bool sealed) {
            PeerEndpoint endpoint{host, port, token_of(token), incarnation, rails, sealed};
            nb::gil_scoped_release unlocked;
            self.connect_node(index, endpoint);
          },
          nb::arg("index"), nb::arg("host"), nb::arg("port"), nb::arg("token"),
          nb::arg("incarnation"), nb::arg("rails"), nb::arg("sealed"))
      .def(
          "channel_connected",
          [](Engine& self, uint64_t connect_id, const nb::bytes& packed) {
            const InPlace<std::byte> answer(packed, "answer");
            nb::gil_scoped_release unlocked;
            self.channel_connected(connect_id, answer);
          },
          nb::arg("connect_id"), nb::arg("answer"))
      .def("channel_refused", &Engine::channel_refused, Unlocked(), nb::arg("connect_id"),
           nb::arg("why"))
      .def(
          "accept_channel",
          [](Engine& self, const std::string& node_id, Incarnation incarnation,
             const nb::bytes& offer, const nb::bytes& closed) {
            const InPlace<std::byte> end(offer, "offer");
            const auto numbers = unpack<uint32_t>(closed, "closed");
            std::vector<std::byte> answer;
            {
              nb::gil_scoped_release unlocked;
              answer = self.accept_channel(node_id, incarnation, end, numbers);
            }
            return pack(answer);
          },
          nb::arg("node_id"), nb::arg("incarnation"), nb::arg("offer"), nb::arg("closed"))
      .def("suspect_node", &Engine::suspect_node, Unlocked(), nb::arg("index"), nb::arg("suspect"))
      .def(
          "admit_reader",
          [](Engine& self, const std::string& node_id, Incarnation incarnation,
             const nb::bytes& token) { self.admit_reader(node_id, incarnation, token_of(token)); },
          nb::arg("node_id"), nb::arg("incarnation"), nb::arg("token"))
      .def("expel_reader", &Engine::expel_reader, Unlocked(), nb::arg("node_id"),
           nb::arg("incarnation"))

      .def("pool_summaries",
           [](Engine& self) {
             std::pair<Generation, OwnerSummaries> result;
             {
               nb::gil_scoped_release unlocked;
               result = self.pool_summaries();
             }
             return nb::make_tuple(result.first, summaries_dict(result.second));
           })
      .def(
          "pool_rows",
          [](Engine& self, HolderIndex owner, const nb::bytes& mask) {
            const auto buckets = bucket_mask(mask);
            std::pair<Generation, std::vector<RecordRow>> result;
            {
              nb::gil_scoped_release unlocked;
              result = self.pool_rows(owner, buckets);
            }
            return nb::make_tuple(result.first, pack(result.second));
          },
          nb::arg("owner"), nb::arg("buckets"))
      .def(
          "mark_published",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<RecordRow> rows(packed, "rows");
            nb::gil_scoped_release unlocked;
            self.pool().mark_published(rows);
          },
          nb::arg("rows"))
      .def(
          "begin_removal",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<Digest> digests(packed, "digests");
            std::vector<RecordRow> rows;
            Engine::Removed removed{};
            {
              nb::gil_scoped_release unlocked;
              removed = self.begin_removal(digests, rows);
            }
            if (removed == Engine::Removed::too_many)
              throw std::overflow_error("too many removals are under way");
            return nb::make_tuple(pack(rows), removed == Engine::Removed::kept);
          },
          nb::arg("digests"))
      .def(
          "end_removal",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<Digest> digests(packed, "digests");
            nb::gil_scoped_release unlocked;
            self.end_removal(digests);
          },
          nb::arg("digests"))
      .def("drop_all", &Engine::drop_all, nb::call_guard<nb::gil_scoped_release>())
      .def("hold_back", &Engine::hold_back, nb::call_guard<nb::gil_scoped_release>())
      .def("release_held", &Engine::release_held)
      .def("begin_serving", &Engine::begin_serving)
      .def("end_serving", &Engine::end_serving, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("removals_last", [](Engine& self) { return self.journal().last(); })
      .def_prop_ro("state_is_old", &Engine::state_is_old)
      .def(
          "removals_since",
          [](Engine& self, Position position) -> std::optional<nb::bytes> {
            std::optional<std::vector<Digest>> digests;
            {
              nb::gil_scoped_release unlocked;
              digests = self.journal().since(position);
            }
            if (!digests) return std::nullopt;
            return pack(*digests);
          },
          nb::arg("position"))
      .def(
          "remove_local",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<Digest> digests(packed, "digests");
            std::vector<RecordRow> rows;
            bool kept = false;
            {
              nb::gil_scoped_release unlocked;
              kept = self.remove_local(digests, rows);
            }
            return nb::make_tuple(pack(rows), kept);
          },
          nb::arg("digests"))
      .def(
          "drop_from_pool",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<Digest> digests(packed, "digests");
            std::vector<RecordRow> rows;
            {
              nb::gil_scoped_release unlocked;
              rows = self.drop_from_pool(digests);
            }
            return pack(rows);
          },
          nb::arg("digests"))
      .def(
          "promote",
          [](Engine& self, const nb::bytes& packed, uint32_t timeout_ms) {
            const InPlace<Digest> digests(packed, "digests");
            std::vector<RecordRow> rows;
            {
              nb::gil_scoped_release unlocked;
              rows = self.promote_local(digests, Deadline::after_ms(timeout_ms));
            }
            return pack(rows);
          },
          nb::arg("digests"), nb::arg("timeout_ms"))
      .def(
          "warm",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<Digest> digests(packed, "digests");
            nb::gil_scoped_release unlocked;
            self.warm_local(digests);
          },
          nb::arg("digests"))
      .def("take_used",
           [](Engine& self) {
             nb::list list;
             for (const auto& [holder, digests] : self.take_used())
               list.append(nb::make_tuple(holder, pack(digests)));
             return list;
           })
      .def("set_taking", &Engine::set_taking, nb::arg("taking"))
      .def(
          "handovers",
          [](Engine& self, uint64_t bytes_max) {
            Handovers found;
            {
              nb::gil_scoped_release unlocked;
              found = self.handovers(bytes_max);
            }
            nb::list list;
            for (const Handover& part : found.parts) {
              list.append(nb::make_tuple(pack(std::span<const Digest>(&part.namespace_id, 1)),
                                         part.epoch, part.idle_ms, pack(part.rows)));
            }
            return nb::make_tuple(list, found.too_large);
          },
          nb::arg("bytes_max"))
      .def(
          "adopt",
          [](Engine& self, HolderIndex holder, const nb::bytes& namespace_id, uint64_t epoch,
             uint32_t idle_ms, const nb::bytes& rows, uint32_t timeout_ms) {
            const Handover offered{unpack_digest(namespace_id), epoch, idle_ms,
                                   handover_rows(rows)};
            Adopted adopted;
            {
              nb::gil_scoped_release unlocked;
              adopted = self.adopt(holder, offered, Deadline::after_ms(timeout_ms));
            }
            return nb::make_tuple(pack(adopted.held), adopted.why_not, adopted.full);
          },
          nb::arg("holder"), nb::arg("namespace_id"), nb::arg("epoch"), nb::arg("idle_ms"),
          nb::arg("rows"), nb::arg("timeout_ms"))
      .def(
          "local_rows",
          [](Engine& self, const nb::bytes& packed) {
            const InPlace<Digest> digests(packed, "digests");
            std::vector<RecordRow> rows;
            {
              nb::gil_scoped_release unlocked;
              rows = self.local_rows(digests);
            }
            return pack(rows);
          },
          nb::arg("digests"))

      .def(
          "digest",
          [](Engine& self, const std::string& name, const nb::bytes& key) {
            check_namespace(name);
            const std::shared_ptr<Namespace> ns = self.open_namespace(name, kNoUser);
            if (ns == nullptr) {
              throw std::invalid_argument("namespace: this daemon has its maximum of " +
                                          std::to_string(kNamespacesMax) + ": clear some");
            }
            const Digest digest =
                digest_of(ns->current().key, std::string_view(key.c_str(), key.size()));
            return pack(std::span<const Digest>(&digest, 1));
          },
          nb::arg("namespace"), nb::arg("key"))
      .def(
          "namespace_id",
          [](Engine& self, const std::string& name) {
            check_namespace(name);
            const Digest id = self.namespaces().id_of(name);
            return pack(std::span<const Digest>(&id, 1));
          },
          nb::arg("namespace"))
      .def(
          "namespace_epoch",
          [](Engine& self, const nb::bytes& id) {
            return self.namespaces().epoch_of(unpack_digest(id));
          },
          nb::arg("namespace_id"))
      .def("epochs_mark", [](Engine& self) { return self.namespaces().epochs_mark(); })
      .def(
          "say_life",
          [](Engine& self, uint64_t view_number, uint64_t sequence, bool in_office, double for_s) {
            self.say_life(view_number, sequence, in_office,
                          std::chrono::milliseconds(static_cast<int64_t>(for_s * 1000)));
          },
          nb::arg("view_number"), nb::arg("sequence"), nb::arg("in_office"), nb::arg("for_s"))
      .def("take_life_signs",
           [](Engine& self) {
             const TimePoint now = Clock::now();
             const auto ago_s = [&](TimePoint at) {
               return at == TimePoint::min() ? std::numeric_limits<double>::infinity()
                                             : std::chrono::duration<double>(now - at).count();
             };
             nb::list signs;
             for (const auto& heard : self.take_life_signs()) {
               const tcp::LifeSign& sign = heard.sign;
               signs.append(nb::make_tuple(heard.who, sign.view_number, sign.sequence,
                                           sign.epochs_mark, sign.in_office == 1, ago_s(heard.at),
                                           ago_s(heard.answered)));
             }
             return signs;
           })
      .def("namespace_epochs",
           [](Engine& self) {
             nb::dict epochs;
             for (const auto& [id, epoch] : self.namespaces().epochs()) {
               epochs[pack(std::span<const Digest>(&id, 1))] = epoch;
             }
             return epochs;
           })
      .def(
          "raise_epoch",
          [](Engine& self, const nb::bytes& id, uint64_t epoch) {
            return self.raise_epoch(unpack_digest(id), epoch);
          },
          nb::arg("namespace_id"), nb::arg("epoch"))
      .def(
          "location_cached",
          [](Engine& self, const nb::bytes& digest) {
            RecordRow row;
            return self.locations().find(unpack_digest(digest), TimePoint::min(), row);
          },
          nb::arg("digest"))
      .def("stats",
           [](Engine& self) {
             std::string text;
             {
               nb::gil_scoped_release unlocked;
               text = self.status_json();
             }
             return parse_json(text);
           })
      .def("latencies",
           [](Engine& self) {
             std::vector<NamedLatency> all;
             {
               nb::gil_scoped_release unlocked;
               all = self.latencies();
             }
             nb::list list;
             for (const NamedLatency& one : all) {
               list.append(nb::make_tuple(one.kind, one.label, one.counts.sum_ns,
                                          pack(std::span<const uint64_t>(one.counts.counts))));
             }
             return list;
           })
      .def("workers", &workers);

  module.def("latency_bounds_us", [] {
    nb::list bounds;
    for (size_t i = 0; i + 1 < kLatencyBuckets; ++i) bounds.append(latency_bound_us(i));
    return bounds;
  });
}

}  // namespace peercached
