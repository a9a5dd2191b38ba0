// Numbers for (namespace, epoch), so that the index needs only 4 bytes per page for them, and an
// epoch can be dropped in one step. Also counts the room that each namespace's pages take on disk
// (page_room in format.h, not only payloads), and holds its quota.
//
// A number is in use while it has pages; then it is reused. Floors, the lowest live epochs, stay
// for the life of the table: one per namespace that was ever cleared. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/types.h"
#include "disk/disk_tier.h"

namespace peercached::disk {

class NamespaceNumbers {
 public:
  struct Name {
    Digest id;
    uint64_t epoch = 0;
  };

  // Returns the number of this name and counts one more page of this payload length on it.
  uint32_t acquire(const Digest& id, uint64_t epoch, uint32_t length);
  void release(uint32_t number, uint32_t length);
  Name name(uint32_t number) const;
  // Whether its epoch is still live.
  bool live(uint32_t number) const;
  bool live(const Digest& id, uint64_t epoch) const;

  // Drops epochs below this one. False: the floor was already as high.
  bool raise_floor(const Digest& id, uint64_t epoch);
  std::map<Digest, uint64_t> floors() const;

  // Limit for all live epochs together.
  void set_quota(const Digest& id, uint64_t bytes);  // UINT64_MAX: none
  // False, and counted, if the page would exceed the quota.
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
  uint64_t bytes_of(const Digest& id) const REQUIRES_SHARED(mutex_);

  mutable SharedMutex mutex_;
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::vector<uint32_t> free_ GUARDED_BY(mutex_);
  std::map<std::pair<Digest, uint64_t>, uint32_t> numbers_ GUARDED_BY(mutex_);
  std::map<Digest, uint64_t> floors_ GUARDED_BY(mutex_);
  std::map<Digest, Quota> quotas_ GUARDED_BY(mutex_);
};

}  // namespace peercached::disk
