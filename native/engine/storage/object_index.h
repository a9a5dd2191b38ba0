// The pages in the object store (docs/cold-tier.md), and their places in its objects. The control
// plane reads the objects and fills it. An entry takes about 120 bytes.
//
// A page here may have been removed since the control plane last looked. So exists() counts only
// while the control plane vouches for the index, and land() of the adopter checks the same time.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

// One page of an object, as the object's own index has it (peercached/cold/format.py).
struct ObjectEntry {
  Digest digest;
  uint64_t checksum = 0;
  uint32_t offset = 0;  // of the payload in the object
  uint32_t length = 0;
};
static_assert(sizeof(ObjectEntry) == 32);

// All pages of an object have one namespace, epoch and generation (docs/cold-tier.md).
struct StoredObject {
  Digest name;  // a hash of the object's index
  Digest namespace_id;
  uint64_t epoch = 0;
  Born generation = 0;
  Digest home = {};  // the object under pages/ that has the payloads
};

class ObjectIndex {
 public:
  static constexpr size_t kPagesMax = 1 << 21;
  static constexpr size_t kObjectsMax = 1 << 16;

  struct Stats {
    uint64_t pages = 0, objects = 0, bytes = 0;
  };
  struct Place {
    uint32_t object = 0;
    uint32_t number = 0;  // of the page in its object
    ObjectEntry entry;
  };

  // False: there is no room. A page that is here already gets the new place.
  bool add(const StoredObject& object, std::span<const ObjectEntry> pages);
  void drop(std::span<const Digest> digests);
  // These objects are gone, or are not what they should be.
  void drop_objects(std::span<const Digest> names);
  // Pages of lower epochs of that namespace, and those of lower generations of that epoch.
  void drop_below(const Digest& namespace_id, uint64_t epoch, Born generation);

  bool empty() const { return pages_here_.load(std::memory_order_relaxed) == 0; }
  std::optional<Place> find(const Digest& digest) const;
  // The pages behind this one in its object that are here, from its begin on at most `bytes` of the
  // object.
  std::vector<ObjectEntry> behind(const Digest& digest, uint64_t bytes) const;
  // Sets out[i] to the length of the page where find() would find it. Other entries stay unchanged.
  void lengths(std::span<const Digest> digests, std::span<uint32_t> out) const;
  StoredObject object(uint32_t number) const;
  // The names of all objects, and the bytes of their pages that are here.
  std::vector<std::pair<Digest, uint64_t>> objects() const;
  Stats stats() const;

  // Until then no page here has been removed, as far as an answered removal is concerned.
  void vouch_until(TimePoint until) { vouched_until_.store(until, std::memory_order_release); }
  bool vouched() const { return Clock::now() < vouched_until_.load(std::memory_order_acquire); }

  // The highest generation that this node has read of. Pages set from now on are born in it.
  Born generation() const { return generation_.load(std::memory_order_acquire); }
  void raise_generation(Born generation);

 private:
  struct Object {
    StoredObject is;
    uint32_t pages = 0;
    uint64_t bytes = 0;
    bool dropped = false;
    std::vector<Digest> order{};  // its pages
  };
  // All require mutex_.
  void erase(std::unordered_map<Digest, Place, DigestHash>::iterator page);
  void drop_pages_of_dropped();
  void count();

  mutable std::mutex mutex_;
  std::unordered_map<Digest, Place, DigestHash> pages_;
  std::vector<Object> objects_;                               // by number
  std::unordered_map<Digest, uint32_t, DigestHash> by_name_;  // without dropped ones
  std::vector<uint32_t> free_;                                // numbers without an object
  uint64_t bytes_ = 0;
  std::atomic<uint64_t> pages_here_{0};
  std::atomic<TimePoint> vouched_until_{TimePoint::min()};
  std::atomic<Born> generation_{0};
};

}  // namespace peercached
