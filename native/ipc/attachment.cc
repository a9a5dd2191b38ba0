#include "ipc/attachment.h"

#include <algorithm>

namespace peercached::ipc {

Region::Region(uint32_t id_, const UniqueFd& fd, uint64_t bytes_, RequestHandler& handler)
    : id(id_),
      identity(SharedMemory::identity_of(fd)),
      bytes(bytes_),
      memory(std::make_unique<SharedMemory>(fd, bytes_)),
      handler_(handler) {
  try {
    if (memory->of_device()) {
      handler_.device_region_mapped(memory->base(), memory->bytes(), fd.get());
    } else {
      handler_.region_mapped(memory->base(), memory->bytes());
    }
  } catch (const std::runtime_error& error) {
    throw RequestError(ErrorCode::limit, error.what());
  }
}

namespace {

std::shared_ptr<device::Memory> imported(const device::Handle& handle, RequestHandler& handler) {
  try {
    return handler.import_device(handle);
  } catch (const std::runtime_error& error) {
    throw RequestError(ErrorCode::limit, error.what());
  }
}

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

Region::Region(uint32_t id_, const UniqueFd& fd, const RegisterDevice& told,
               RequestHandler& handler)
    : id(id_),
      identity{told.identity[0], told.identity[1]},
      bytes(told.bytes),
      of_device(imported(
          {static_cast<device::Kind>(told.kind), told.bytes, told.device, told.opaque, fd.get()},
          handler)),
      handler_(handler) {}

Region::~Region() {
  if (memory) handler_.region_unmapped(memory->base());
}

std::shared_ptr<Region> Attachment::add_region(const UniqueFd& fd, uint64_t bytes,
                                               std::atomic<uint32_t>& next_id,
                                               RequestHandler& handler) {
  return add(SharedMemory::identity_of(fd), bytes, bytes,
             [&] { return std::make_shared<Region>(new_region_id(next_id), fd, bytes, handler); });
}

std::shared_ptr<Region> Attachment::add_device(const UniqueFd& fd, const RegisterDevice& told,
                                               std::atomic<uint32_t>& next_id,
                                               RequestHandler& handler) {
  return add({told.identity[0], told.identity[1]}, told.bytes, 0,
             [&] { return std::make_shared<Region>(new_region_id(next_id), fd, told, handler); });
}

template <typename Make>
std::shared_ptr<Region> Attachment::add(const FileIdentity& identity, uint64_t bytes,
                                        uint64_t host_bytes, const Make& make) {
  {
    MutexLock lock(mutex_);
    if (auto known = known_region(identity, bytes, host_bytes)) return known;
  }
  // Mapping a large region takes long, so do it without the mutex.
  auto region = make();
  MutexLock lock(mutex_);
  // Another thread may have been faster.
  if (auto known = known_region(identity, bytes, host_bytes)) return known;
  regions_.emplace(region->id, region);
  return region;
}

std::shared_ptr<Region> Attachment::known_region(const FileIdentity& identity, uint64_t bytes,
                                                 uint64_t host_bytes) const {
  uint64_t total_bytes = host_bytes;
  for (const auto& [id_known, region] : regions_) {
    if (!region) continue;
    if (region->identity == identity && (host_bytes != 0) == (region->host_bytes() != 0)) {
      if (bytes <= region->bytes) return region;
      throw RequestError(ErrorCode::bad_value,
                         "this file is region " + std::to_string(id_known) + " already, with " +
                             std::to_string(region->bytes) + " bytes: unregister it " +
                             "before registering " + std::to_string(bytes));
    }
    total_bytes += region->host_bytes();
  }
  if (regions_.size() >= limits_.regions_max) {
    throw RequestError(ErrorCode::limit, "this worker has " + std::to_string(regions_.size()) +
                                             " regions, the most it may: unregister one");
  }
  if (total_bytes > limits_.bytes_max) {
    throw RequestError(ErrorCode::limit, "a region of " + std::to_string(bytes) +
                                             " bytes would take this worker beyond the " +
                                             std::to_string(limits_.bytes_max) +
                                             " bytes it may share: unregister one");
  }
  return nullptr;
}

std::optional<std::shared_ptr<Region>> Attachment::remove_region(uint32_t region) {
  MutexLock lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end()) return std::nullopt;
  auto last = std::move(found->second);
  regions_.erase(found);
  return last;  // outlives the lock, because unmapping can take long
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
                         std::vector<std::shared_ptr<Region>>& regions,
                         std::vector<DeviceLayout>& layouts) const {
  if (columns.layouts != 0)
    resolve_layouts(columns, pages, regions, layouts);
  else
    resolve_regions(columns, pages, regions);
}

void Attachment::resolve_regions(const PageColumns& columns, std::vector<PageRef>& pages,
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
    if (!known->memory) {  // only a layout can name it
      page.status = PageStatus::bad_region;
      continue;
    }
    const uint64_t bytes = known->bytes;
    // Compare by subtraction, because offset + length may overflow.
    if (page.length == 0 || offset > bytes || page.length > bytes - offset) {
      page.status = PageStatus::bad_range;
      continue;
    }
    page.memory = known->memory->base() + offset;
    page.of_device = known->memory->of_device();
  }
}

PageStatus Attachment::resolve_rows(const PageColumns& columns,
                                    std::vector<std::shared_ptr<Region>>& regions,
                                    std::vector<DeviceLayout>& layouts) const {
  layouts.assign(columns.layouts, {});
  bool lost = false;
  uint32_t next = 0;
  MutexLock lock(mutex_);
  for (uint32_t l = 0; l < columns.layouts; ++l) {
    std::vector<DeviceLayout::Rows>& rows = layouts[l].rows;
    for (const uint32_t end = next + columns.rows_of_layout[l]; next < end; ++next) {
      const auto found = regions_.find(columns.regions[next]);
      if (found == regions_.end() || (found->second && !found->second->of_device))
        return PageStatus::bad_region;
      if (!found->second || found->second->lost.load(std::memory_order_relaxed)) {
        lost = true;
        continue;
      }
      rows.push_back({columns.rows[next], found->second->of_device.get()});
      regions.push_back(found->second);
      // The copies of a page are one operation of one device.
      if (rows.back().memory->device() != regions[0]->of_device->device())
        return PageStatus::bad_region;
    }
    std::ranges::stable_sort(rows, {}, &DeviceLayout::Rows::stage);
  }
  if (!lost) return PageStatus::pending;
  regions.clear();  // nothing is copied, so no other one is lost
  return PageStatus::region_lost;
}

void Attachment::resolve_layouts(const PageColumns& columns, std::vector<PageRef>& pages,
                                 std::vector<std::shared_ptr<Region>>& regions,
                                 std::vector<DeviceLayout>& layouts) const {
  pages.clear();
  pages.resize(columns.count);
  regions.clear();
  const PageStatus of_all = resolve_rows(columns, regions, layouts);
  const char* key = columns.keys.data();
  for (uint32_t i = 0; i < columns.count; ++i) {
    PageRef& page = pages[i];
    const uint32_t key_bytes = columns.key_bytes[i];
    page.key = {key, key_bytes};
    key += key_bytes;
    page.length = columns.lengths[i];
    page.number = columns.offsets[i] & UINT32_MAX;
    page.status = of_all;
    if (key_bytes == 0 || key_bytes > kKeyBytesMax) page.status = PageStatus::bad_key;
    const uint64_t layout = columns.offsets[i] >> 32;
    if (layout >= layouts.size()) {
      if (page.status == PageStatus::pending) page.status = PageStatus::bad_range;
      page.layout = layouts.data();
      continue;
    }
    page.layout = &layouts[layout];
    layouts[layout].last = std::max(layouts[layout].last, page.number);
  }
  if (of_all != PageStatus::pending) return;
  count_pages(layouts);
  for (PageRef& page : pages) {
    const bool fits = page.length == page.layout->page_bytes && page.number < page.layout->pages;
    if (page.status == PageStatus::pending && !fits) page.status = PageStatus::bad_range;
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
    regions.bytes += region->host_bytes();
  }
  return regions;
}

}  // namespace peercached::ipc
