// The settings of a data plane. docs/configuration.md explains them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/identity.h"
#include "common/types.h"
#include "disk/disk_tier.h"
#include "transfer/provider.h"
#include "transfer/verify.h"

namespace peercached {

enum class Role {
  full,    // serves the workers of this host
  memory,  // lends its pool and disk to other nodes; serves no worker
};

// The kind of GPUs that workers may share memory of.
enum class Gpus { off, cuda, stand_in };

// Events tell of the pages of all nodes, or of our own.
enum class EventsOf { all, own };

struct EngineConfig {
  std::string node_id;
  Role role = Role::full;
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
  int connect_timeout_ms = 1000;  // of a channel to a peer
  unsigned copy_threads = 0;      // 0: chosen by the number of processors
  unsigned workers_max = 64;
  Gpus gpu = Gpus::off;
  uint16_t kv_events_port = 0;  // 0: no events are told
  EventsOf kv_events_of = EventsOf::all;
  std::string faults;
  // "tcp", the name of a provider, or "auto": the first provider that can be made here, else TCP.
  std::string protocol = "tcp";
  std::vector<ProviderChoice> providers;
  // The disk tier; path "": none. The engine sets its identity and queue.
  DiskConfig disk;
};

}  // namespace peercached
