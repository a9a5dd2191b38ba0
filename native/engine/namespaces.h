// Namespaces: a name, its current epoch, and the key its digests are made with.
//
// `clear` raises the epoch: from then on every key digests to something else, so all pages of
// the namespace are unreachable at once; their bytes are swept later by `pool slot`, a number
// that names one (namespace, epoch) in the pool.
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
#include "pool/pool.h"

namespace peercached {

inline constexpr size_t kNamespacesMax = 65'536;
// First opened by one user: so one program cannot keep all others out.
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
  NamespaceEpoch current() const {
    std::lock_guard lock(mutex_);
    return epoch_;
  }

 private:
  friend class NamespaceTable;
  const std::string name_;
  const Digest id_;
  const uint32_t user_;
  mutable std::mutex mutex_;
  NamespaceEpoch epoch_;
};

class NamespaceTable {
 public:
  // A namespace whose name is known has a pool slot from now on. Called under the table's mutex.
  using OnSlot = std::function<void(const Namespace& ns, uint32_t pool_slot)>;

  // Of a pool slot: whether there are pages; and that it is of no namespace any more. Likewise.
  using HasPages = std::function<bool(uint32_t pool_slot)>;
  using OnForgotten = std::function<void(uint32_t pool_slot)>;

  explicit NamespaceTable(const Key128& cluster_key) : cluster_key_(cluster_key) {}

  // Before any namespace is opened.
  void on_slot(OnSlot tell) { on_slot_ = std::move(tell); }
  // From then on, namespaces that nobody has open and that have no pages make room for others.
  void forget_unused(HasPages has_pages, OnForgotten tell);

  // `user`: a worker's. Null: the name is too long, or there are too many that somebody has open or
  // that have pages.
  std::shared_ptr<Namespace> open(std::string_view name, uint32_t user);

  Digest id_of(std::string_view name) const { return namespace_id(cluster_key_, name); }
  // Whether pages of that epoch may be found: it is the highest one known.
  bool in_force(const Digest& id, uint64_t epoch) const;
  // The highest epoch known, also of a namespace that was never opened here; 0 if it was never
  // cleared.
  uint64_t epoch_of(const Digest& id) const;
  // Of all that were cleared.
  std::vector<std::pair<Digest, uint64_t>> epochs() const;
  // Two nodes with the same epochs have the same mark; with others, hardly ever.
  uint64_t epochs_mark() const;
  // The namespace and epoch whose pages have this pool slot; none if they are void.
  struct Identity {
    Digest id;
    uint64_t epoch = 0;
  };
  std::map<uint32_t, Identity> by_pool_slot() const;
  // For pages that an earlier start left: their pool slots, 0 where the epoch is over. An epoch
  // that is higher than what was known here is believed: this node was told of it then.
  void judge(std::span<PageNamespace> found);
  // For pages that come from a peer; 0: of an epoch that does not count here, or no room.
  uint32_t pool_slot_of(const Digest& id, uint64_t epoch);
  // True if it rose; then `stale_slot` is the pool slot to sweep (0: none was in use).
  bool raise(const Digest& id, uint64_t epoch, uint32_t& stale_slot);

 private:
  bool has_room() const { return by_id_.size() + unopened_.size() < kNamespacesMax; }
  void make_room();

  const Key128 cluster_key_;
  OnSlot on_slot_ = [](const Namespace&, uint32_t) {};
  HasPages has_pages_;  // empty: not known
  OnForgotten on_forgotten_;
  TimePoint make_room_again_{};
  mutable std::mutex mutex_;
  std::map<Digest, std::shared_ptr<Namespace>> by_id_;
  std::map<uint32_t, size_t> of_user_;  // of those
  std::map<Digest, uint64_t> epochs_;
  uint64_t epochs_mark_ = 0;  // the XOR of a hash of each
  // Of pages that came from peers, of namespaces that no worker here has opened (their names are
  // not known here); by id, for the epoch that is in force.
  std::map<Digest, uint32_t> unopened_;
  uint32_t next_pool_slot_ = 1;
};

}  // namespace peercached
