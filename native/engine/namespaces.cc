#include "engine/namespaces.h"

namespace peercached {

Namespace* NamespaceTable::open(std::string_view name) {
  if (name.size() > kNamespaceBytesMax) return nullptr;
  const Digest id = id_of(name);
  std::lock_guard lock(mutex_);
  auto found = by_id_.find(id);
  if (found != by_id_.end()) return found->second.get();
  if (by_id_.size() >= kNamespacesMax) return nullptr;
  auto made = std::make_unique<Namespace>(std::string(name), id);
  auto known = epochs_.find(id);
  const uint64_t epoch = known == epochs_.end() ? 0 : known->second;
  made->epoch_ = {epoch, derive_namespace_key(cluster_key_, name, epoch), next_pool_slot_++};
  return by_id_.emplace(id, std::move(made)).first->second.get();
}

std::vector<std::pair<Digest, uint64_t>> NamespaceTable::epochs() const {
  std::lock_guard lock(mutex_);
  return {epochs_.begin(), epochs_.end()};
}

bool NamespaceTable::raise(const Digest& id, uint64_t epoch, uint32_t& stale_slot) {
  stale_slot = 0;
  std::lock_guard lock(mutex_);
  auto known = epochs_.find(id);
  if (known == epochs_.end()) {
    if (epoch == 0 || epochs_.size() >= kNamespacesMax) return false;
    epochs_.emplace(id, epoch);
  } else {
    if (epoch <= known->second) return false;
    known->second = epoch;
  }
  auto open = by_id_.find(id);
  if (open != by_id_.end()) {
    Namespace& ns = *open->second;
    std::lock_guard ns_lock(ns.mutex_);
    stale_slot = ns.epoch_.pool_slot;
    ns.epoch_ = {epoch, derive_namespace_key(cluster_key_, ns.name_, epoch), next_pool_slot_++};
  }
  return true;
}

}  // namespace peercached
