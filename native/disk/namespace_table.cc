#include "disk/namespace_table.h"

#include <mutex>

namespace peercached::disk {

uint32_t NamespaceTable::acquire(const Digest& id, uint64_t epoch) {
  std::lock_guard lock(mutex_);
  const auto [place, is_new] = numbers_.try_emplace({id, epoch}, 0);
  if (is_new) {
    if (free_.empty()) {
      place->second = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      place->second = free_.back();
      free_.pop_back();
    }
    const auto floor = floors_.find(id);
    slots_[place->second] = {{id, epoch}, 0, floor == floors_.end() || epoch >= floor->second};
  }
  ++slots_[place->second].pages;
  return place->second;
}

void NamespaceTable::release(uint32_t number) {
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[number];
  if (--slot.pages > 0) return;
  numbers_.erase({slot.name.id, slot.name.epoch});
  free_.push_back(number);
}

NamespaceTable::Name NamespaceTable::name(uint32_t number) const {
  std::shared_lock lock(mutex_);
  return slots_[number].name;
}

bool NamespaceTable::live(uint32_t number) const {
  std::shared_lock lock(mutex_);
  return slots_[number].live;
}

bool NamespaceTable::live(const Digest& id, uint64_t epoch) const {
  std::shared_lock lock(mutex_);
  const auto floor = floors_.find(id);
  return floor == floors_.end() || epoch >= floor->second;
}

bool NamespaceTable::raise_floor(const Digest& id, uint64_t epoch) {
  std::lock_guard lock(mutex_);
  uint64_t& floor = floors_[id];
  if (epoch <= floor) return false;
  floor = epoch;
  for (auto at = numbers_.lower_bound({id, 0});
       at != numbers_.end() && at->first.first == id && at->first.second < epoch; ++at) {
    slots_[at->second].live = false;
  }
  return true;
}

}  // namespace peercached::disk
