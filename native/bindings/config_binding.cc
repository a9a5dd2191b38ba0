// The data plane's part of the daemon's configuration.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <initializer_list>
#include <utility>

#include "bindings/packed.h"
#include "engine/engine.h"
#include "transfer/rdma/fabric.h"

namespace peercached {

namespace {

// A file mode, in octal.
struct FileMode {
  uint32_t bits = 0660;
};

struct Settings {
  EngineConfig engine;
  rdma::RailPolicy rails;
  rdma::LinkSettings link;
  FileMode socket_mode;
  bool disk_enabled = false;
};

// Calls take(key, place of its value) for each key of the configuration that the data plane needs:
// the only list of them. Names, types and choices are those of peercached/config/schema.py.
template <typename Take>
void each_key(Settings& to, const Take& take) {
  EngineConfig& engine = to.engine;
  take("node_id", engine.node_id);
  take("role", engine.role);
  take("socket_path", engine.socket_path);
  take("socket_mode", to.socket_mode);
  take("workers_max", engine.workers_max);
  take("pool_size", engine.pool_bytes);
  take("huge_pages", engine.huge_pages);
  take("pool_file", engine.pool_file);
  take("copy_threads", engine.copy_threads);
  take("disk_enabled", to.disk_enabled);
  take("disk_path", engine.disk.path);
  take("disk_size", engine.disk.size_bytes);
  take("disk_sync", engine.disk.sync);
  take("directory_capacity", engine.shard_entries);
  take("directory_copies", engine.copied_records);
  take("location_cache_entries", engine.location_cache_entries);
  take("verify", engine.verify);
  take("host", engine.data_host);
  take("data_port", engine.data_port);
  take("data_sealed", engine.data_sealed);
  take("max_channels_per_peer", engine.channels_per_peer);
  take("protocol", engine.protocol);
  take("device_names", to.rails.device_names);
  take("rdma_gid_index", to.rails.gid_index);
  take("rdma_mtu", to.link.mtu_bytes);
  take("rdma_service_level", to.link.service_level);
  take("rdma_traffic_class", to.link.traffic_class);
  take("rdma_hop_limit", to.link.hop_limit);
  take("rdma_pkey", to.link.pkey);
  take("rdma_timeout", to.link.timeout);
  take("rdma_retry_count", to.link.retry_count);
  take("gpu", engine.gpu);
  take("kv_events_port", engine.kv_events_port);
  take("kv_events_of", engine.kv_events_of);
  take("faults", engine.faults);
}

template <typename Choice>
Choice choice_of(const std::string& text,
                 std::initializer_list<std::pair<const char*, Choice>> choices) {
  std::string known;
  for (const auto& [name, choice] : choices) {
    if (text == name) return choice;
    known += std::string(known.empty() ? "" : ", ") + name;
  }
  throw std::invalid_argument("'" + text + "' is none of " + known);
}

template <typename T>
void set(T& place, nb::handle value) {
  place = nb::cast<T>(value);
}
void set(FileMode& place, nb::handle value) {
  place.bits = static_cast<uint32_t>(std::stoul(nb::cast<std::string>(value), nullptr, 8));
}
void set(Role& place, nb::handle value) {
  place = choice_of<Role>(nb::cast<std::string>(value),
                          {{"full", Role::full}, {"memory", Role::memory}});
}
void set(Verify& place, nb::handle value) {
  place = choice_of<Verify>(nb::cast<std::string>(value),
                            {{"checksum", Verify::checksum}, {"header", Verify::header}});
}
void set(Gpus& place, nb::handle value) {
  place = choice_of<Gpus>(nb::cast<std::string>(value),
                          {{"off", Gpus::off}, {"cuda", Gpus::cuda}, {"stand-in", Gpus::stand_in}});
}
void set(EventsOf& place, nb::handle value) {
  place = choice_of<EventsOf>(nb::cast<std::string>(value),
                              {{"all", EventsOf::all}, {"own", EventsOf::own}});
}
void set(SyncPolicy& place, nb::handle value) {
  place = choice_of<SyncPolicy>(nb::cast<std::string>(value), {{"never", SyncPolicy::never},
                                                               {"segment", SyncPolicy::segment},
                                                               {"batch", SyncPolicy::batch}});
}

}  // namespace

EngineConfig config_of(nb::handle keys) {
  Settings settings;
  each_key(settings, [&](const char* key, auto& place) {
    try {
      set(place, nb::getattr(keys, key));
    } catch (const std::logic_error& error) {
      throw std::invalid_argument(std::string(key) + ": " + error.what());
    } catch (const nb::cast_error&) {
      throw std::invalid_argument(std::string(key) + ": the data plane takes another type");
    }
  });
  EngineConfig& engine = settings.engine;
  engine.version = PEERCACHED_VERSION;
  // The transports beside TCP, in order of preference.
  engine.providers = {rdma::as_choice(settings.rails, settings.link)};
  engine.socket_mode = settings.socket_mode.bits;
  if (!settings.disk_enabled) engine.disk.path.clear();
  return std::move(engine);
}

nb::list config_keys() {
  nb::list keys;
  Settings settings;
  each_key(settings, [&](const char* key, auto&) { keys.append(key); });
  return keys;
}

}  // namespace peercached
