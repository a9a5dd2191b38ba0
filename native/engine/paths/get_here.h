// The first two places of a get: our pool, and our disk.
#pragma once

#include <span>

#include "common/copy_crew.h"
#include "device/device.h"
#include "engine/measures/load_times.h"
#include "engine/paths/get_pages.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/local_pages.h"
#include "engine/storage/promoter.h"
#include "pool/pool.h"

namespace peercached {

struct GetHere {
  Pool& pool;
  DiskPages& disk;
  const Promoter& promoter;
  LocalPages& local;
  CopyCrew& crew;
  LoadTimes& times;
  device::Devices* devices;  // null: no worker has memory of one

  // `source`: where the pages were when the get began.
  void from_pool(GetPages& get, Source source = Source::pool) const;
  void from_disk(GetPages& get) const;

 private:
  // Tells how long these pages took, from our pool or from our disk.
  static void note(const GetPages& get, std::span<const size_t> index, LoadTimes::Load& load,
                   TimePoint began);
  // Reads pages from our disk into our pool, and copies them from there: a batch by its indices.
  void promote(GetPages& get, std::span<const size_t> index) const;
  // Copies our pinned pages into the region: pins[k] is the index[k]-th page.
  void copy_out(GetPages& get, std::span<const PinnedPage> pins, std::span<const size_t> index,
                Source source) const;
  // The copies: found[j] is the place of a pinned page in `pins` and `index`.
  void copy_to_region(GetPages& get, std::span<const PinnedPage> pins,
                      std::span<const size_t> index, std::span<const size_t> found,
                      uint64_t bytes) const;
  void copy_to_device(GetPages& get, std::span<const PinnedPage> pins,
                      std::span<const size_t> index, std::span<const size_t> found) const;
};

}  // namespace peercached
