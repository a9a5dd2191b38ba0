// The last place of a get: the object store (docs/cold-tier.md). The control plane reads the pages
// into our pool, and we copy them from there.
//
// Pages of the store are asked for when no node has them. They go on from our pool as others do,
// also into a GPU. Only memory of a device without a layout gets none: this process cannot write
// it.
#pragma once

#include "engine/control/control_queue.h"
#include "engine/paths/get_here.h"
#include "engine/paths/get_pages.h"
#include "engine/storage/object_index.h"

namespace peercached {

struct GetStore {
  const GetHere here;
  const ObjectIndex& objects;
  ControlQueue& control;

  void from_store(GetPages& get) const;

 private:
  // One part of the pages: their indices.
  void fetch(GetPages& get, std::span<const size_t> index) const;
};

}  // namespace peercached
