#include "engine/observe/operator_view.h"

#include <algorithm>

#include "common/json.h"
#include "engine/storage/namespaces.h"

namespace peercached {

namespace {

void write_pool(JsonWriter& json, const PoolStats& pool) {
  json.key("pool").open('{');
  json.field("capacity_bytes", pool.capacity_bytes).field("used_bytes", pool.used_bytes);
  json.field("ready_bytes", pool.ready_bytes).field("why_small", pool.why_small);
  json.field("payload_bytes", pool.payload_bytes).field("keys", pool.keys);
  json.field("adopted_keys", pool.moved.keys).field("adopted_bytes", pool.moved.bytes);
  json.field("replica_keys", pool.replicas.keys).field("replica_bytes", pool.replicas.bytes);
  json.field("hinted_keys", pool.hinted.keys).field("hinted_bytes", pool.hinted.bytes);
  json.field("retained_keys", pool.retained.keys).field("retained_bytes", pool.retained.bytes);
  json.field("reserved", pool.reserved).field("pins", pool.pins).field("sets", pool.sets);
  json.field("evictions", pool.evictions).field("removals", pool.removals);
  json.field("given", pool.given);
  json.field("lost_bytes", pool.lost_bytes);
  json.field("span_moves", pool.span_moves).field("no_space", pool.no_space);
  json.key("classes").open('[');
  for (const auto& one : pool.classes) {
    json.open('{').field("stride_bytes", one.stride_bytes).field("slots", one.slots);
    json.field("used", one.used).field("spans", one.spans).field("evictions", one.evictions);
    json.field("pinned", one.pinned).close('}');
  }
  json.close(']').close('}');
}

void write_recovery(JsonWriter& json, const RecoveryReport& report) {
  json.key("recovery").open('{').field("file", report.file).field("why_fresh", report.why_fresh);
  json.field("pages", report.pages).field("bytes", report.bytes);
  json.field("seconds", report.seconds);
  json.key("dropped").open('{').field("damaged_headers", report.damaged_headers);
  json.field("damaged_payloads", report.damaged_payloads).field("unfinished", report.unfinished);
  json.field("cleared", report.cleared).field("removed", report.removed);
  json.field("duplicates", report.duplicates).close('}');
  json.field("damaged_spans", report.damaged_spans).close('}');
}

void write_outcomes(JsonWriter& json, std::string_view name,
                    const std::array<Counter, kStatusCount>& outcomes) {
  json.key(name).open('{');
  for (size_t i = 0; i < outcomes.size(); ++i) json.field(kStatusNames[i], outcomes[i].load());
  json.close('}');
}

void write_disk(JsonWriter& json, const DiskStats& disk, const PromoterStats& promoter) {
  constexpr const char* kStates[] = {"on", "read_only", "stalled"};
  json.key("disk").open('{').field("state", kStates[static_cast<size_t>(disk.state)]);
  json.field("why", disk.why).field("io", disk.io);
  json.field("size_bytes", disk.size_bytes).field("used_bytes", disk.used_bytes);
  json.field("segments", disk.segments).field("pages", disk.pages);
  json.field("payload_bytes", disk.payload_bytes).field("index_bytes", disk.index_bytes);
  json.field("queued_pages", disk.queued_pages).field("queued_bytes", disk.queued_bytes);
  json.field("pages_written", disk.pages_written);
  json.field("payload_bytes_written", disk.payload_bytes_written);
  json.field("disk_bytes_written", disk.disk_bytes_written);
  json.field("pages_carried", disk.pages_carried).field("pages_evicted", disk.pages_evicted);
  json.field("segments_evicted", disk.segments_evicted);
  json.field("skipped_full", disk.skipped_full).field("skipped_off", disk.skipped_off);
  json.field("skipped_old", disk.skipped_old).field("skipped_large", disk.skipped_large);
  json.field("skipped_quota", disk.skipped_quota);
  json.field("page_bytes_max", disk.page_bytes_max);
  json.field("write_errors", disk.write_errors);
  json.field("removed", disk.removed);
  json.field("pages_read", disk.pages_read);
  json.field("payload_bytes_read", disk.payload_bytes_read);
  json.field("disk_bytes_read", disk.disk_bytes_read).field("disk_reads", disk.disk_reads);
  json.field("copied_bytes_read", disk.copied_bytes_read);
  json.field("reads_absent", disk.reads_absent).field("reads_corrupt", disk.reads_corrupt);
  json.field("reads_failed", disk.reads_failed).field("reads_late", disk.reads_late);
  json.field("recovery_ms", disk.recovery.ms).field("recovered_pages", disk.recovery.pages);
  json.field("recovered_segments", disk.recovery.segments);
  json.field("recovery_walked", disk.recovery.walked);
  json.field("recovery_rejected", disk.recovery.rejected);
  json.field("recovery_corrupt", disk.recovery.corrupt);
  json.field("recovery_removed", disk.recovery.removed);
  json.field("recovery_emptied", disk.recovery.emptied);
  json.field("promoted", promoter.promoted).field("promoted_bytes", promoter.promoted_bytes);
  json.field("warmed", promoter.warmed).field("promotes_not_now", promoter.not_now);
  json.field("promotes_late", promoter.late).field("promotes_failed", promoter.failed);
  json.field("promotes_absent", promoter.absent);
  json.field("warm_queued", promoter.warm_queued);
  json.field("warm_dropped", promoter.warm_dropped).close('}');
}

void write_removals(JsonWriter& json, const JournalStats& removals) {
  json.key("removals").open('{').field("last", removals.last).field("floor", removals.floor);
  json.field("entries", removals.entries).field("waiting", removals.waiting);
  json.field("problem", removals.problem).close('}');
}

void write_handover(JsonWriter& json, const OperationCounters& counters) {
  json.key("handover").open('{').field("adopted", counters.adopted.load());
  json.field("adopted_bytes", counters.adopted_bytes.load());
  json.field("adopt_refused", counters.adopt_refused.load());
  json.field("replicated", counters.replicated.load());
  json.field("replicated_bytes", counters.replicated_bytes.load());
  json.field("replicate_refused", counters.replicate_refused.load()).close('}');
}

void write_holds(JsonWriter& json, const HoldStats& holds) {
  json.key("holds").open('{').field("pages", holds.pages).field("bytes", holds.bytes);
  json.field("refused", holds.refused).close('}');
  json.key("pins").open('{').field("pages", holds.pinned.pages).field("bytes", holds.pinned.bytes);
  json.field("refused", holds.pins_refused).close('}');
}

void write_shard(JsonWriter& json, const ShardStats& shard) {
  json.key("shard").open('{');
  json.field("entries", shard.entries).field("dead_entries", shard.dead_entries);
  json.field("bytes", shard.bytes).field("capacity_entries", shard.capacity_entries);
  json.field("added", shard.added).field("changed", shard.changed);
  json.field("withdrawn", shard.withdrawn).field("old", shard.old).field("full", shard.full);
  json.field("bad", shard.bad);
  json.field("lookups", shard.lookups).field("hits", shard.hits).close('}');
}

void write_copies(JsonWriter& json, const RecordTableStats& copies) {
  json.key("copies").open('{');
  json.field("holders", copies.holders).field("records", copies.records);
  json.field("records_max", copies.records_max).field("bytes", copies.bytes);
  json.field("begun", copies.begun).field("no_room", copies.no_room);
  json.field("only_owned", copies.only_owned).close('}');
}

void write_locations(JsonWriter& json, const LocationCache& locations) {
  json.key("locations").open('{');
  json.field("entries_max", locations.entries_max());
  json.field("hits", locations.hits()).field("misses", locations.misses()).close('}');
}

void write_ipc(JsonWriter& json, const IpcStats& ipc) {
  json.key("ipc").open('{');
  json.field("connections", ipc.connections).field("accepted", ipc.accepted);
  json.field("refused", ipc.refused).field("bad_frames", ipc.bad_frames);
  json.field("forbidden", ipc.forbidden).field("crowded", ipc.crowded);
  json.field("late_hellos", ipc.late_hellos).field("requests_refused", ipc.requests_refused);
  json.field("regions_lost", ipc.regions_lost).field("sets", ipc.sets).field("gets", ipc.gets);
  json.field("exists", ipc.exists).field("others", ipc.others);
  json.field("given_up", ipc.given_up).close('}');
}

std::string text_of(const device::DeviceId& id) {
  std::string text;
  for (const uint8_t byte : id) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

void write_gpus(JsonWriter& json, const device::Devices* devices) {
  json.key("gpus").open('[');
  for (const device::DeviceState& gpu :
       devices == nullptr ? std::vector<device::DeviceState>() : devices->states()) {
    json.open('{').field("id", text_of(gpu.id)).field("name", gpu.name);
    json.field("regions", gpu.allocations).field("region_bytes", gpu.imported_bytes);
    json.field("copied_bytes", gpu.copied_bytes).field("why_lost", gpu.why_lost);
    json.field("why_slow", gpu.why_slow).close('}');
  }
  json.close(']');
}

void write_tcp_server(JsonWriter& json, const TcpServerStats& tcp) {
  json.key("tcp_server").open('{');
  json.field("channels", tcp.channels).field("accepted", tcp.accepted);
  json.field("refused", tcp.refused).field("bad_hellos", tcp.bad_hellos);
  json.field("bad_frames", tcp.bad_frames).field("pages", tcp.pages).field("bytes", tcp.bytes);
  json.field("crowded", tcp.crowded).field("unauthorised", tcp.unauthorised);
  json.field("late_hellos", tcp.late_hellos).field("kernel_sealed", tcp.kernel_sealed);
  json.field("stale", tcp.stale).field("stalls", tcp.stalls).close('}');
}

void write_demand(JsonWriter& json, const Demand& demand) {
  json.key("demand").open('{').field("asked", demand.asked());
  json.key("found").open('{');
  for (size_t i = static_cast<size_t>(Source::pool); i < kSourceNames.size(); ++i) {
    json.field(kSourceNames[i], demand.found(i));
  }
  json.close('}');
  json.key("evicted").open('{');
  for (size_t i = 0; i < kLargerPools.size(); ++i) {
    json.field(std::to_string(kLargerPools[i]) + "x", demand.evicted(i));
  }
  json.close('}');
  json.field("tokens_asked", demand.tokens_asked());
  json.field("tokens_found", demand.tokens_found()).close('}');
}

constexpr size_t kNamespacesShownMax = 256;

// Writes the namespaces with the most memory or demand.
void write_namespaces(JsonWriter& json, Storage& storage) {
  struct Rank {
    Digest id;
    NamespaceUse use;
    uint64_t asked = 0;
  };
  std::vector<Rank> ranks;
  storage.namespaces().for_each([&](const Namespace& ns) {
    const NamespaceUse use = storage.pool().use_of(ns.current().pool_slot);
    ranks.push_back({ns.id(), use, ns.demand().asked()});
  });
  const size_t shown = std::min(ranks.size(), kNamespacesShownMax);
  const auto larger = [](const Rank& a, const Rank& b) {
    return a.use.bytes != b.use.bytes ? a.use.bytes > b.use.bytes : a.asked > b.asked;
  };
  std::partial_sort(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(shown), ranks.end(),
                    larger);
  json.key("namespaces").open('[');
  for (const auto& [id, use, asked] : std::span(ranks).first(shown)) {
    const auto ns = storage.namespaces().find(id);
    if (ns == nullptr) continue;  // forgotten meanwhile
    json.open('{').field("name", ns->name()).field("epoch", ns->current().epoch);
    json.field("pool_pages", use.keys).field("pool_bytes", use.bytes);
    if (use.quota_bytes != UINT64_MAX) json.field("quota_bytes", use.quota_bytes);
    if (storage.disk().enabled()) {
      json.field("disk_bytes", storage.disk().tier().use_of(id).room_bytes);
    }
    json.field("keys_compared", ns->same_keys().compared.load());
    json.field("keys_differed", ns->same_keys().differed.load());
    write_demand(json, ns->demand());
    json.close('}');
  }
  json.close(']');
  json.field("namespaces_open", ranks.size());
}

void write_operations(JsonWriter& json, const OperationCounters& c) {
  json.key("operations").open('{');
  write_outcomes(json, "set", c.set);
  write_outcomes(json, "get", c.get);
  const auto hits = [&](Source source) { return c.hits[static_cast<size_t>(source)].load(); };
  json.field("get_local", hits(Source::pool)).field("get_disk", hits(Source::disk));
  json.field("get_remote", hits(Source::peer)).field("get_peer_disk", hits(Source::peer_disk));
  json.field("get_store", hits(Source::store));
  json.field("stale_retries", c.stale_retries.load());
  json.field("corrupt_local", c.corrupt_local.load());
  json.field("corrupt_remote", c.corrupt_remote.load());
  json.field("set_held", c.set_held.load()).field("unpublished", c.unpublished.load());
  json.field("keys_in_copies", c.keys_in_copies.load());
  json.field("lookups_asked", c.lookups_asked.load());
  json.field("lookup_keys_asked", c.lookup_keys_asked.load());
  json.field("lookup_frames", c.lookup_frames.load());
  json.field("lookups_passed_on", c.lookups_passed_on.load());
  json.field("lookups_answered", c.lookups_answered.load());
  json.field("publish_frames", c.publish_frames.load());
  json.field("publishes_answered", c.publishes_answered.load());
  json.field("used_elsewhere", c.used_elsewhere.load());
  json.field("cut_pages", c.loads_judged.cut_pages.load());
  json.field("given_up_pages", c.loads_judged.given_up_pages.load());
  json.field("cut_us", c.loads_judged.cut_us.load());
  json.field("computed_us", c.loads_judged.computed_us.load());
  json.field("bytes_set", c.bytes_set.load()).field("bytes_got", c.bytes_got.load()).close('}');
}

void write_nodes(JsonWriter& json, const NodeTable& nodes) {
  json.key("nodes").open('[');
  for (const auto& node : nodes.all()) {
    json.open('{').field("index", node.index).field("node_id", node.node_id);
    json.field("incarnation", node.incarnation).field("connected", node.connected);
    json.field("suspect", node.suspect).close('}');
  }
  json.close(']');
}

void write_peers(JsonWriter& json, const TransferEngine& reads) {
  json.key("peers").open('[');
  for (const auto& peer : reads.health()) {
    json.open('{').field("index", peer.peer).field("channels", peer.channels);
    json.field("transport", peer.transport);
    json.field("pages", peer.pages).field("bytes", peer.bytes).field("errors", peer.errors);
    json.field("deadlines", peer.deadlines).field("corrupt", peer.corrupt).close('}');
  }
  json.close(']');
}

}  // namespace

std::string OperatorView::status_json() const {
  JsonWriter json;
  json.open('{');
  parts_.storage.quotas().write(json);
  write_namespaces(json, parts_.storage);
  write_demand(json, parts_.counters.demand);
  write_sections(json);
  return json.close('}').take();
}

void OperatorView::write_sections(JsonWriter& json) const {
  Storage& storage = parts_.storage;
  write_pool(json, storage.pool().stats());
  write_recovery(json, storage.pool().recovery());
  write_removals(json, storage.journal().stats());
  if (storage.disk().enabled())
    write_disk(json, storage.disk().tier().stats(), storage.promoter().stats());
  write_handover(json, parts_.counters);
  write_holds(json, storage.holds().stats());
  write_shard(json, parts_.directory.records().shard_stats());
  write_copies(json, parts_.directory.records().stats());
  write_locations(json, parts_.locations);
  write_ipc(json, parts_.workers.stats());
  write_gpus(json, parts_.devices);
  write_tcp_server(json, parts_.readers.stats());
  write_operations(json, parts_.counters);
  json.field("transfer", parts_.transports.engine().name());
  write_nodes(json, parts_.nodes);
  write_peers(json, parts_.transports.engine());
  json.field("events_posted", parts_.control.posted());
  json.field("events_dropped", parts_.control.dropped());
}

std::string OperatorView::stats_json(const RequestContext& context) const {
  JsonWriter json;
  json.open('{').field("node_id", parts_.config.node_id);
  json.field("incarnation", parts_.config.incarnation).field("version", parts_.config.version);
  json.field("namespace", context.ns->name()).field("epoch", context.ns->current().epoch);
  write_demand(json, context.ns->demand());
  write_sections(json);
  return json.close('}').take();
}

std::vector<NamedLatency> OperatorView::latencies() const {
  const Latencies& latencies = parts_.latencies;
  std::vector<NamedLatency> all;
  all.push_back({"set", "", latencies.set.snapshot()});
  all.push_back({"exists", "", latencies.exists.snapshot()});
  all.push_back({"promote", "", latencies.promote.snapshot()});
  for (size_t i = 0; i < kSourceNames.size(); ++i) {
    all.push_back({"get", kSourceNames[i], latencies.get[i].snapshot()});
  }
  for (const auto& [op, name] : {std::pair(ipc::TookOp::set, "set"),
                                 {ipc::TookOp::get, "get"},
                                 {ipc::TookOp::exists, "exists"}}) {
    all.push_back({"client", name, latencies.client[static_cast<size_t>(op)].snapshot()});
  }
  for (const PeerHealth& peer : parts_.transports.engine().health()) {
    all.push_back({"peer_read", std::to_string(peer.peer), peer.reads});
  }
  for (const auto& [rail, reads] : parts_.transports.rail_reads()) {
    all.push_back({"rail_read", rail, reads});
  }
  return all;
}

std::vector<std::string> OperatorView::take_notices() {
  parts_.storage.quotas().notify(parts_.notices);
  const DiskPages& disk = parts_.storage.disk();
  if (disk.enabled() && disk_watch_.due()) disk_watch_.notify(disk.tier().stats(), parts_.notices);
  parts_.transports.notify(parts_.notices);
  return parts_.notices.take();
}

}  // namespace peercached
