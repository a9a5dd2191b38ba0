// The last place of a get: the object store (docs/cold-tier.md). The control plane reads the pages
// into our pool, and we copy them from there.
//
// Pages of the store are asked for when no node has them. GPU memory gets none: the daemon cannot
// write some of it, and an `exists` before the get has the pages brought to the pool.
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
