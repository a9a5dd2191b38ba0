// Numbers for (namespace, epoch), so that the index needs 4 bytes a page for them and a whole
// epoch can be dropped in one step; and what a namespace holds of the disk, beside its quota: the
// room that its pages take (page_room in format.h), not only their payloads.
//
// A number is in use while pages are counted on it; then it is given out again. Floors, the
// lowest epochs that still count, stay for the life of the table: one per namespace that was ever
// cleared. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "common/types.h"
#include "disk/disk_tier.h"

namespace peercached::disk {

class NamespaceTable {
 public:
  struct Name {
    Digest id;
    uint64_t epoch = 0;
  };

  // The number of this name, with one page more, of so many payload bytes, counted on it.
  uint32_t acquire(const Digest& id, uint64_t epoch, uint32_t length);
  void release(uint32_t number, uint32_t length);
  Name name(uint32_t number) const;
  // Whether its epoch still counts.
  bool live(uint32_t number) const;
  bool live(const Digest& id, uint64_t epoch) const;

  // Epochs below this one do not count any more. False: the floor was as high already.
  bool raise_floor(const Digest& id, uint64_t epoch);
  std::map<Digest, uint64_t> floors() const;

  // What all epochs that count may hold together.
  void set_quota(const Digest& id, uint64_t bytes);
  // False: the page would break the quota; counted.
  bool admit(const Digest& id, uint32_t length);
  DiskNamespaceUse use_of(const Digest& id) const;

 private:
  struct Slot {
    Name name;
    uint64_t pages = 0;
    uint64_t room_bytes = 0;
    bool live = true;
  };
  struct Quota {
    uint64_t bytes = 0;
    uint64_t skipped_pages = 0;
  };
  uint64_t bytes_of(const Digest& id) const;  // with mutex_ held

  mutable std::shared_mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::map<std::pair<Digest, uint64_t>, uint32_t> numbers_;
  std::map<Digest, uint64_t> floors_;
  std::map<Digest, Quota> quotas_;
};

}  // namespace peercached::disk
