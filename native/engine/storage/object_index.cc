#include "engine/storage/object_index.h"

namespace peercached {

void ObjectIndex::erase(std::unordered_map<Digest, Place, DigestHash>::iterator page) {
  Object& object = objects_[page->second.object];
  bytes_ -= page->second.entry.length;
  object.bytes -= page->second.entry.length;
  if (--object.pages == 0) {
    if (!object.dropped) by_name_.erase(object.is.name);
    object = {};
    free_.push_back(page->second.object);
  }
  pages_.erase(page);
}

void ObjectIndex::count() { pages_here_.store(pages_.size(), std::memory_order_relaxed); }

bool ObjectIndex::add(const StoredObject& object, std::span<const ObjectEntry> pages) {
  std::lock_guard lock(mutex_);
  if (pages.empty() || by_name_.contains(object.name)) return true;
  if (pages_.size() + pages.size() > kPagesMax || by_name_.size() >= kObjectsMax) return false;
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(objects_.size()));
    objects_.emplace_back();
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  // Counted first: an object may name a page twice, and replaces its own entry then.
  objects_[number] = {object, static_cast<uint32_t>(pages.size())};
  std::vector<Digest>& order = objects_[number].order;
  by_name_.emplace(object.name, number);
  for (const ObjectEntry& entry : pages) objects_[number].bytes += entry.length;
  for (const ObjectEntry& entry : pages) {
    if (const auto old = pages_.find(entry.digest); old != pages_.end()) erase(old);
    pages_.emplace(entry.digest, Place{number, static_cast<uint32_t>(order.size()), entry});
    order.push_back(entry.digest);
    bytes_ += entry.length;
  }
  count();
  return true;
}

void ObjectIndex::drop(std::span<const Digest> digests) {
  std::lock_guard lock(mutex_);
  for (const Digest& digest : digests)
    if (const auto page = pages_.find(digest); page != pages_.end()) erase(page);
  count();
}

void ObjectIndex::drop_objects(std::span<const Digest> names) {
  std::lock_guard lock(mutex_);
  bool any = false;
  for (const Digest& name : names) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) continue;
    objects_[found->second].dropped = any = true;
    by_name_.erase(found);
  }
  if (any) drop_pages_of_dropped();
}

void ObjectIndex::drop_below(const Digest& namespace_id, uint64_t epoch, Born generation) {
  std::lock_guard lock(mutex_);
  bool any = false;
  for (Object& object : objects_) {
    if (object.pages == 0 || object.dropped || object.is.namespace_id != namespace_id ||
        std::pair(object.is.epoch, object.is.generation) >= std::pair(epoch, generation))
      continue;
    object.dropped = any = true;
    by_name_.erase(object.is.name);
  }
  if (any) drop_pages_of_dropped();
}

// Scans all pages: objects vanish rarely, and an index of their pages would cost each of them.
void ObjectIndex::drop_pages_of_dropped() {
  for (auto page = pages_.begin(); page != pages_.end();) {
    const auto next = std::next(page);
    if (objects_[page->second.object].dropped) erase(page);
    page = next;
  }
  count();
}

std::optional<ObjectIndex::Place> ObjectIndex::find(const Digest& digest) const {
  if (empty()) return std::nullopt;
  std::lock_guard lock(mutex_);
  const auto page = pages_.find(digest);
  if (page == pages_.end()) return std::nullopt;
  return page->second;
}

std::vector<ObjectEntry> ObjectIndex::behind(const Digest& digest, uint64_t bytes) const {
  std::vector<ObjectEntry> entries;
  std::lock_guard lock(mutex_);
  const auto first = pages_.find(digest);
  if (first == pages_.end()) return entries;
  const Place& from = first->second;
  const std::vector<Digest>& order = objects_[from.object].order;
  for (size_t i = from.number + 1; i < order.size(); ++i) {
    const auto page = pages_.find(order[i]);
    if (page == pages_.end() || page->second.object != from.object || page->second.number != i)
      continue;
    const ObjectEntry& entry = page->second.entry;
    if (entry.offset < from.entry.offset ||
        uint64_t{entry.offset} + entry.length - from.entry.offset > bytes)
      break;
    entries.push_back(entry);
  }
  return entries;
}

void ObjectIndex::lengths(std::span<const Digest> digests, std::span<uint32_t> out) const {
  if (empty()) return;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < digests.size(); ++i)
    if (const auto page = pages_.find(digests[i]); page != pages_.end())
      out[i] = page->second.entry.length;
}

StoredObject ObjectIndex::object(uint32_t number) const {
  std::lock_guard lock(mutex_);
  return number < objects_.size() ? objects_[number].is : StoredObject{};
}

std::vector<std::pair<Digest, uint64_t>> ObjectIndex::objects() const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<Digest, uint64_t>> found;
  for (const auto& [name, number] : by_name_) found.emplace_back(name, objects_[number].bytes);
  return found;
}

void ObjectIndex::raise_generation(Born generation) {
  Born known = generation_.load(std::memory_order_acquire);
  while (known < generation && !generation_.compare_exchange_weak(known, generation)) {
  }
}

ObjectIndex::Stats ObjectIndex::stats() const {
  std::lock_guard lock(mutex_);
  return {pages_.size(), by_name_.size(), bytes_};
}

}  // namespace peercached
