#include "disk/namespace_numbers.h"

#include "disk/format.h"

namespace peercached::disk {

uint32_t NamespaceNumbers::acquire(const Digest& id, uint64_t epoch, uint32_t length) {
  WriterLock lock(mutex_);
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
    slots_[place->second] = {{id, epoch}, 0, 0, floor == floors_.end() || epoch >= floor->second};
  }
  ++slots_[place->second].pages;
  slots_[place->second].room_bytes += page_room(length);
  return place->second;
}

void NamespaceNumbers::release(uint32_t number, uint32_t length) {
  WriterLock lock(mutex_);
  Slot& slot = slots_[number];
  slot.room_bytes -= page_room(length);
  if (--slot.pages > 0) return;
  numbers_.erase({slot.name.id, slot.name.epoch});
  free_.push_back(number);
}

NamespaceNumbers::Name NamespaceNumbers::name(uint32_t number) const {
  ReaderLock lock(mutex_);
  return slots_[number].name;
}

bool NamespaceNumbers::live(uint32_t number) const {
  ReaderLock lock(mutex_);
  return slots_[number].live;
}

bool NamespaceNumbers::live(const Digest& id, uint64_t epoch) const {
  ReaderLock lock(mutex_);
  const auto floor = floors_.find(id);
  return floor == floors_.end() || epoch >= floor->second;
}

bool NamespaceNumbers::raise_floor(const Digest& id, uint64_t epoch) {
  WriterLock lock(mutex_);
  uint64_t& floor = floors_[id];
  if (epoch <= floor) return false;
  floor = epoch;
  for (auto at = numbers_.lower_bound({id, 0});
       at != numbers_.end() && at->first.first == id && at->first.second < epoch; ++at) {
    slots_[at->second].live = false;
  }
  return true;
}

std::map<Digest, uint64_t> NamespaceNumbers::floors() const {
  ReaderLock lock(mutex_);
  return floors_;
}

void NamespaceNumbers::set_quota(const Digest& id, uint64_t bytes) {
  WriterLock lock(mutex_);
  if (bytes == UINT64_MAX) {
    quotas_.erase(id);
  } else {
    quotas_[id].bytes = bytes;
  }
}

bool NamespaceNumbers::admit(const Digest& id, uint32_t length) {
  WriterLock lock(mutex_);
  const auto quota = quotas_.find(id);
  if (quota == quotas_.end() || bytes_of(id) + page_room(length) <= quota->second.bytes)
    return true;
  ++quota->second.skipped_pages;
  return false;
}

DiskNamespaceUse NamespaceNumbers::use_of(const Digest& id) const {
  ReaderLock lock(mutex_);
  DiskNamespaceUse use;
  use.room_bytes = bytes_of(id);
  const auto quota = quotas_.find(id);
  if (quota == quotas_.end()) return use;
  use.quota_bytes = quota->second.bytes;
  use.skipped_pages = quota->second.skipped_pages;
  return use;
}

// Cheap: few epochs of a namespace have pages at a time, the live ones and those being swept.
uint64_t NamespaceNumbers::bytes_of(const Digest& id) const {
  uint64_t bytes = 0;
  for (auto at = numbers_.lower_bound({id, 0}); at != numbers_.end() && at->first.first == id;
       ++at) {
    const Slot& slot = slots_[at->second];
    if (slot.live) bytes += slot.room_bytes;
  }
  return bytes;
}

}  // namespace peercached::disk
