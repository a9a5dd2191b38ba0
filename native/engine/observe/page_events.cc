#include "engine/observe/page_events.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>

namespace peercached {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);

double unix_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

PageEvents::PageEvents(const Parts& parts, bool all)
    : parts_(parts),
      all_(all),
      picture_([this](auto digests, auto found) { identify(digests, found); }) {
  parts_.storage.on_epoch(
      [this](const Digest& id, uint64_t epoch) { picture_.epoch_raised(id, epoch); });
  for (const auto& [id, epoch] : parts_.storage.namespaces().epochs())
    picture_.epoch_raised(id, epoch);
  parts_.publisher.tell(&picture_);
  parts_.directory.tell(&picture_);
}

void PageEvents::identify(std::span<const Digest> digests,
                          std::span<kv_events::NamespaceOf> found) const {
  NamespaceTable& namespaces = parts_.storage.namespaces();
  const auto by_slot = namespaces.by_pool_slot();
  std::map<Digest, NamespaceTable::Identity> in_pool;
  for (const IdlePage& page : parts_.storage.pool().idle_pages(digests)) {
    const auto at = by_slot.find(page.namespace_slot);
    if (at != by_slot.end()) in_pool.emplace(page.row.digest, at->second);
  }
  for (size_t i = 0; i < digests.size(); ++i) {
    if (const auto page = in_pool.find(digests[i]); page != in_pool.end()) {
      found[i] = {page->second.id, page->second.epoch, {}};
    } else if (const auto on_disk = parts_.storage.disk().find(digests[i])) {
      found[i] = {on_disk->namespace_id, on_disk->epoch, {}};
    } else {
      continue;
    }
    if (const auto ns = namespaces.find(found[i].id)) found[i].text = ns->name();
  }
}

void PageEvents::scan_own() {
  // In this order: what goes from here on leaves a mark, so that no older row brings it back.
  picture_.begin_scan();
  parts_.publisher.forget_told();
  std::vector<RecordRow> rows;
  auto scan = parts_.storage.disk().begin_scan();
  for (bool more = true; more;) {
    rows.clear();
    more = parts_.storage.disk().scan(scan, rows);
    picture_.changed(kSelfHolder, rows);
  }
  picture_.end_scan();
}

std::vector<kv_events::LiveNode> PageEvents::live() const {
  std::vector<kv_events::LiveNode> live;
  const bool all = tells_all();
  std::vector<HolderIndex> leased;
  if (all) leased = parts_.directory.records().holders();
  std::map<std::string, Incarnation> newest;
  const auto nodes = parts_.nodes.all();
  for (const NodeTable::Node& node : nodes) {
    Incarnation& one = newest[node.node_id];
    one = std::max(one, node.incarnation);
  }
  for (const NodeTable::Node& node : nodes) {
    const bool usable = node.index == kSelfHolder
                            ? parts_.serving.on()
                            : all && parts_.nodes.usable(node.index) &&
                                  std::ranges::find(leased, node.index) != leased.end();
    if (usable && newest[node.node_id] == node.incarnation)
      live.push_back({node.index, node.node_id});
  }
  return live;
}

kv_events::Picture::Drained PageEvents::drain(size_t bytes_max) {
  if (parts_.serving.on() && parts_.publisher.must_scan()) scan_own();
  return picture_.drain(live(), Clock::now(), unix_time(), bytes_max, kPatience);
}

std::vector<kv_events::Batch> PageEvents::snapshot() { return picture_.snapshot(unix_time()); }

}  // namespace peercached
