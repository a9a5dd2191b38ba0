#include "engine/records/nodes.h"

#include <stdexcept>

namespace peercached {

NodeTable::NodeTable(std::string self_id, Incarnation self_incarnation) {
  ids_.push_back(std::move(self_id));
  incarnations_[kSelfHolder] = self_incarnation;
  state_[kSelfHolder] = kLive;
}

HolderIndex NodeTable::add(const std::string& node_id, Incarnation incarnation) {
  std::lock_guard lock(mutex_);
  size_t free = ids_.size();
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i] == node_id && incarnations_[i] == incarnation) return static_cast<HolderIndex>(i);
    if (ids_[i].empty() && free == ids_.size()) free = i;
  }
  if (free == kNodesMax) {
    throw std::length_error("more than " + std::to_string(kNodesMax) +
                            " node incarnations are known at once");
  }
  if (free == ids_.size()) ids_.emplace_back();
  ids_[free] = node_id;
  incarnations_[free] = incarnation;
  slow_until_[free] = TimePoint{};
  same_keys_[free].reset();
  state_[free].store(kLive, std::memory_order_release);
  return static_cast<HolderIndex>(free);
}

void NodeTable::drop(HolderIndex index) {
  std::lock_guard lock(mutex_);
  if (index == kSelfHolder || index >= ids_.size()) return;
  state_[index].store(0, std::memory_order_release);
  ids_[index].clear();
}

void NodeTable::set(HolderIndex index, uint8_t flag, bool on) {
  bool begins = false;
  {
    std::lock_guard lock(mutex_);
    if (index == kSelfHolder || index >= ids_.size() || ids_[index].empty()) return;
    const bool could = readable(index);
    if (on) {
      state_[index].fetch_or(flag);
    } else {
      state_[index].fetch_and(static_cast<uint8_t>(~flag));
    }
    begins = !could && readable(index);
  }
  if (begins && on_readable_) on_readable_();
}

void NodeTable::set_slow(HolderIndex index, TimePoint until) {
  if (index < kNodesMax) slow_until_[index].store(until, std::memory_order_relaxed);
}

std::vector<HolderIndex> NodeTable::find(std::span<const Incarnation> incarnations) const {
  std::vector<HolderIndex> found;
  found.reserve(incarnations.size());
  std::lock_guard lock(mutex_);
  for (Incarnation incarnation : incarnations) {
    HolderIndex index = kNoHolder;
    for (size_t i = 0; i < ids_.size() && index == kNoHolder; ++i) {
      if (!ids_[i].empty() && incarnations_[i] == incarnation) index = static_cast<HolderIndex>(i);
    }
    found.push_back(index);
  }
  return found;
}

std::vector<NodeTable::Node> NodeTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Node> nodes;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (ids_[i].empty()) continue;
    const uint8_t state = state_[i];
    nodes.push_back({static_cast<HolderIndex>(i), ids_[i], incarnations_[i],
                     (state & kConnected) != 0, (state & kSuspect) != 0});
  }
  return nodes;
}

bool NodeTable::any_suspect() const {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (!ids_[i].empty() && suspect(static_cast<HolderIndex>(i))) return true;
  }
  return false;
}

}  // namespace peercached
