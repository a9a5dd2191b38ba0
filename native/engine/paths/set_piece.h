// One piece of a set: reserve -> copy -> commit -> tell.
//
// A piece stays pinned until its records are in the log. So no withdrawal by eviction comes before
// them. Pages removed meanwhile are withdrawn once more, behind their records.
#pragma once

#include <span>
#include <vector>

#include "common/copy_crew.h"
#include "device/device.h"
#include "directory/record_table.h"
#include "engine/handover/part_queue.h"
#include "engine/measures/counters.h"
#include "engine/records/nodes.h"
#include "engine/records/publisher.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/namespaces.h"
#include "engine/storage/object_index.h"
#include "ipc/handler.h"
#include "pool/held_slots.h"
#include "pool/pool.h"
#include "removals/running.h"

namespace peercached {

// The pages of the whole set.
struct SetPages {
  const RequestContext& context;
  const NamespaceEpoch& ns;
  std::span<PageRef> pages;
  std::span<const Digest> digests;
  std::vector<size_t> busy{};  // pages that another worker is setting right now
};

struct SetPieces {
  Pool& pool;
  DiskPages& disk;
  const Running& running;
  Publisher& publisher;
  const NodeTable& nodes;
  const RecordTable& records;
  const ObjectIndex& objects;
  PartQueue& fresh;  // gets the pages while it is on
  CopyCrew& crew;
  OperationCounters& counters;
  device::Devices* devices;  // null: no worker has memory of one

  // `chosen`: the piece's pages, by index.
  void store(SetPages& set, std::span<const size_t> chosen, const Digest* parent) const;

 private:
  struct Piece;
  void reserve(SetPages& set, Piece& piece, const Digest* parent) const;
  void compare_held(const SetPages& set, const Piece& piece) const;
  void fill(SetPages& set, Piece& piece) const;
  void fill_from_region(SetPages& set, Piece& piece, uint64_t bytes) const;
  void fill_from_device(SetPages& set, Piece& piece, uint64_t bytes) const;
  // By place in `committing`: 1 if another node has the page in its pool. Counts whether it has the
  // same bytes.
  std::vector<uint8_t> present_elsewhere(const SetPages& set, const Piece& piece) const;
  void commit(SetPages& set, Piece& piece) const;
  void drop_removed(SetPages& set, const Piece& piece) const;
};

}  // namespace peercached
