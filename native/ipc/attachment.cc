#include "ipc/attachment.h"

#include <algorithm>

namespace peercached::ipc {

Region::Region(uint32_t id_, const UniqueFd& fd, uint64_t bytes, RequestHandler& handler)
    : id(id_), memory(fd, bytes), handler_(handler) {
  try {
    if (memory.of_device()) {
      handler_.device_region_mapped(memory.base(), memory.bytes(), fd.get());
    } else {
      handler_.region_mapped(memory.base(), memory.bytes());
    }
  } catch (const std::runtime_error& error) {
    throw RequestError(ErrorCode::limit, error.what());
  }
}

namespace {

uint32_t new_region_id(std::atomic<uint32_t>& next_id) {
  uint32_t id = next_id.load();
  do {
    if (id == UINT32_MAX) {
      throw RequestError(ErrorCode::limit,
                         "this daemon has given out all its region ids: restart it");
    }
  } while (!next_id.compare_exchange_weak(id, id + 1));
  return id;
}

}  // namespace

Region::~Region() { handler_.region_unmapped(memory.base()); }

std::shared_ptr<Region> Attachment::add_region(const UniqueFd& fd, uint64_t bytes,
                                               std::atomic<uint32_t>& next_id,
                                               RequestHandler& handler) {
  const FileIdentity identity = SharedMemory::identity_of(fd);
  {
    MutexLock lock(mutex_);
    if (auto known = known_region(identity, bytes)) return known;
  }
  // Mapping a large region takes long, so do it without the mutex.
  auto region = std::make_shared<Region>(new_region_id(next_id), fd, bytes, handler);
  MutexLock lock(mutex_);
  if (auto known = known_region(identity, bytes)) return known;  // another thread was faster
  regions_.emplace(region->id, region);
  return region;
}

std::shared_ptr<Region> Attachment::known_region(const FileIdentity& identity,
                                                 uint64_t bytes) const {
  uint64_t total_bytes = bytes;
  for (const auto& [id_known, region] : regions_) {
    if (!region) continue;
    if (region->memory.identity() == identity) {
      if (bytes <= region->memory.bytes()) return region;
      throw RequestError(ErrorCode::bad_value,
                         "this file is region " + std::to_string(id_known) + " already, with " +
                             std::to_string(region->memory.bytes()) + " bytes: unregister it " +
                             "before registering " + std::to_string(bytes));
    }
    total_bytes += region->memory.bytes();
  }
  if (regions_.size() >= limits_.regions_max) {
    throw RequestError(ErrorCode::limit, "this worker has " + std::to_string(regions_.size()) +
                                             " regions, the most it may: unregister one");
  }
  if (bytes > limits_.bytes_max || total_bytes > limits_.bytes_max) {
    throw RequestError(ErrorCode::limit, "a region of " + std::to_string(bytes) +
                                             " bytes would take this worker beyond the " +
                                             std::to_string(limits_.bytes_max) +
                                             " bytes it may share: unregister one");
  }
  return nullptr;
}

bool Attachment::remove_region(uint32_t region) {
  std::shared_ptr<Region> last;  // outlives the lock, because unmapping can take long
  MutexLock lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end()) return false;
  last = std::move(found->second);
  regions_.erase(found);
  return true;
}

bool Attachment::lose_region(uint32_t region) {
  std::shared_ptr<Region> last;
  MutexLock lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end() || !found->second) return false;
  last = std::move(found->second);
  last->lost = true;
  found->second = nullptr;
  return true;
}

void Attachment::resolve(const PageColumns& columns, std::vector<PageRef>& pages,
                         std::vector<std::shared_ptr<Region>>& regions) const {
  pages.clear();
  pages.resize(columns.count);
  regions.clear();
  const char* key = columns.keys.data();
  uint32_t known_id = 0;  // never assigned
  const Region* known = nullptr;
  size_t known_at = 0;  // index in `regions`
  PageStatus known_status = PageStatus::bad_region;

  for (uint32_t i = 0; i < columns.count; ++i) {
    PageRef& page = pages[i];
    const uint32_t key_bytes = columns.key_bytes[i];
    page.key = {key, key_bytes};
    key += key_bytes;
    if (key_bytes == 0 || key_bytes > kKeyBytesMax) page.status = PageStatus::bad_key;
    if (!columns.has_memory) continue;

    page.region = columns.regions[i];
    page.length = columns.lengths[i];
    if (page.status != PageStatus::pending) continue;
    if (page.region != known_id || known == nullptr) {
      known_id = page.region;
      known = nullptr;
      known_status = PageStatus::bad_region;
      // Pages often use the same regions in the same order. So search from the one behind the last
      // region used.
      for (size_t step = 1; step <= regions.size() && known == nullptr; ++step) {
        const size_t at = (known_at + step) % regions.size();
        if (regions[at]->id != known_id) continue;
        known = regions[at].get();
        known_at = at;
      }
      if (known == nullptr) {
        MutexLock lock(mutex_);
        const auto found = regions_.find(known_id);
        if (found != regions_.end()) {
          known_status = PageStatus::region_lost;
          if (found->second) {
            known = found->second.get();
            known_at = regions.size();
            regions.push_back(found->second);
          }
        }
      }
    }
    if (known == nullptr || known->lost.load(std::memory_order_relaxed)) {
      page.status = known == nullptr ? known_status : PageStatus::region_lost;
      continue;
    }
    const uint64_t offset = columns.offsets[i];
    const uint64_t bytes = known->memory.bytes();
    // Compare by subtraction, because offset + length may overflow.
    if (page.length == 0 || offset > bytes || page.length > bytes - offset) {
      page.status = PageStatus::bad_range;
      continue;
    }
    page.memory = known->memory.base() + offset;
    page.of_device = known->memory.of_device();
  }
}

void Attachment::add_gate(std::shared_ptr<const GatePage> gate) {
  MutexLock lock(mutex_);
  gates_.push_back(std::move(gate));
}

void Attachment::remove_gate(const std::shared_ptr<const GatePage>& gate) {
  MutexLock lock(mutex_);
  std::erase(gates_, gate);
}

uint32_t Attachment::stuck() const {
  MutexLock lock(mutex_);
  return static_cast<uint32_t>(
      std::ranges::count_if(gates_, [](const auto& gate) { return gate->gate().stuck(); }));
}

Attachment::Regions Attachment::regions() const {
  MutexLock lock(mutex_);
  Regions regions;
  for (const auto& [id_known, region] : regions_) {
    if (!region) continue;
    ++regions.count;
    regions.bytes += region->memory.bytes();
  }
  return regions;
}

}  // namespace peercached::ipc
