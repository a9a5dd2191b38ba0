// Namespaces: a name, its current epoch, and the key that makes its digests.
//
// `clear` raises the epoch. From then on every key has another digest, so all pages of the
// namespace are unreachable at once. Their bytes are swept later by `pool slot`, a number that
// names one (namespace, epoch) in the pool.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/identity.h"
#include "common/types.h"
#include "engine/measures/demand.h"
#include "engine/measures/same_keys.h"
#include "pool/pool.h"

namespace peercached {

inline constexpr size_t kNamespacesMax = 65'536;
// At most so many were first opened by one user, so that one program cannot shut out all others.
inline constexpr size_t kNamespacesPerUserMax = kNamespacesMax / 2;
inline constexpr size_t kNamespaceBytesMax = 1024;

struct NamespaceEpoch {
  uint64_t epoch = 0;
  Key128 key{};
  uint32_t pool_slot = 0;
};

class Namespace {
 public:
  Namespace(std::string name, Digest id, uint32_t user)
      : name_(std::move(name)), id_(id), user_(user) {}
  const std::string& name() const { return name_; }
  const Digest& id() const { return id_; }
  Demand& demand() { return demand_; }
  const Demand& demand() const { return demand_; }
  SameKeys& same_keys() { return same_keys_; }
  const SameKeys& same_keys() const { return same_keys_; }
  NamespaceEpoch current() const {
    std::lock_guard lock(mutex_);
    return epoch_;
  }

 private:
  friend class NamespaceTable;
  const std::string name_;
  const Digest id_;
  const uint32_t user_;
  Demand demand_;
  SameKeys same_keys_;
  mutable std::mutex mutex_;
  NamespaceEpoch epoch_;
};

class NamespaceTable {
 public:
  // A namespace with a known name gets this pool slot. Called under the table's mutex.
  using OnSlot = std::function<void(const Namespace& ns, uint32_t pool_slot)>;

  // HasPages: the slot has pages. OnForgotten: it is of no namespace any more. Called likewise.
  using HasPages = std::function<bool(uint32_t pool_slot)>;
  using OnForgotten = std::function<void(uint32_t pool_slot)>;

  explicit NamespaceTable(const Key128& cluster_key) : cluster_key_(cluster_key) {}

  // Call before any namespace is opened.
  void on_slot(OnSlot tell) { on_slot_ = std::move(tell); }
  // From then on, a namespace that nobody has open and that has no pages makes room for others.
  void forget_unused(HasPages has_pages, OnForgotten tell);

  // `user`: the worker's. Null: the name is too long, or too many namespaces are open or have
  // pages.
  std::shared_ptr<Namespace> open(std::string_view name, uint32_t user);

  Digest id_of(std::string_view name) const { return namespace_id(cluster_key_, name); }
  // The key of its current epoch. Opens no namespace.
  Key128 key_of(std::string_view name) const {
    return derive_namespace_key(cluster_key_, name, epoch_of(id_of(name)));
  }
  // Whether pages of that epoch may be found, because it is the highest one known.
  bool in_force(const Digest& id, uint64_t epoch) const;
  // The highest epoch known, also of a namespace that was never opened here; 0 if it was never
  // cleared.
  uint64_t epoch_of(const Digest& id) const;
  // The epochs of all cleared namespaces.
  std::vector<std::pair<Digest, uint64_t>> epochs() const;
  // Nodes with the same epochs have the same mark. With different epochs the marks nearly always
  // differ.
  uint64_t epochs_mark() const;
  // Calls `visit` with each namespace that was opened and is not forgotten, under the mutex.
  void for_each(const std::function<void(const Namespace&)>& visit) const;
  // Null: it was not opened, or is forgotten.
  std::shared_ptr<const Namespace> find(const Digest& id) const;
  // The namespace and epoch of each pool slot in use. Void slots are left out.
  struct Identity {
    Digest id;
    uint64_t epoch = 0;
  };
  std::map<uint32_t, Identity> by_pool_slot() const;
  // Fills in the pool slots of pages that an earlier start left: 0 where the epoch is over. An
  // epoch above ours is believed, because this node was told of it then.
  void judge(std::span<PageNamespace> found);
  // For pages from a peer or the disk. 0: the epoch is not current here, or there is no room.
  uint32_t pool_slot_of(const Digest& id, uint64_t epoch);
  // True if the epoch rose. Then `stale_slot` is the pool slot to sweep (0: none was in use).
  bool raise(const Digest& id, uint64_t epoch, uint32_t& stale_slot);

 private:
  // Both require mutex_, as make_room() does. known_epoch(): see epoch_of().
  uint64_t known_epoch(const Digest& id) const;
  bool has_room() const { return by_id_.size() + unopened_.size() < kNamespacesMax; }
  void make_room();

  const Key128 cluster_key_;
  OnSlot on_slot_ = [](const Namespace&, uint32_t) {};
  HasPages has_pages_;  // empty: unknown
  OnForgotten on_forgotten_;
  TimePoint make_room_again_{};
  mutable std::mutex mutex_;
  std::map<Digest, std::shared_ptr<Namespace>> by_id_;
  std::map<uint32_t, size_t> of_user_;  // namespaces in by_id_, by user
  std::map<Digest, uint64_t> epochs_;
  uint64_t epochs_mark_ = 0;  // XOR of the hashes of all entries
  // Pool slots of namespaces that no worker here has opened, for pages from peers. Their names are
  // unknown here. By id, for the current epoch.
  std::map<Digest, uint32_t> unopened_;
  uint32_t next_pool_slot_ = 1;
};

}  // namespace peercached
