#include "engine/storage/namespaces.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace peercached {
namespace {

constexpr auto kMakeRoomAgain = std::chrono::seconds(1);

uint64_t mark_of(const Digest& id, uint64_t epoch) {
  return XXH3_64bits_withSeed(&id, sizeof id, epoch);
}

}  // namespace

std::shared_ptr<Namespace> NamespaceTable::open(std::string_view name, uint32_t user) {
  if (name.size() > kNamespaceBytesMax) return nullptr;
  const Digest id = id_of(name);
  std::lock_guard lock(mutex_);
  auto found = by_id_.find(id);
  if (found != by_id_.end()) return found->second;
  const auto may_be = [&] { return has_room() && of_user_[user] < kNamespacesPerUserMax; };
  if (!may_be()) make_room();
  if (!may_be()) return nullptr;
  auto made = std::make_shared<Namespace>(std::string(name), id, user);
  ++of_user_[user];
  const uint64_t epoch = known_epoch(id);
  auto unopened = unopened_.find(id);
  const uint32_t pool_slot = unopened == unopened_.end() ? next_pool_slot_++ : unopened->second;
  if (unopened != unopened_.end()) unopened_.erase(unopened);
  on_slot_(*made, pool_slot);
  made->epoch_ = {epoch, derive_namespace_key(cluster_key_, name, epoch), pool_slot};
  return by_id_.emplace(id, std::move(made)).first->second;
}

void NamespaceTable::forget_unused(HasPages has_pages, OnForgotten tell) {
  std::lock_guard lock(mutex_);
  has_pages_ = std::move(has_pages);
  on_forgotten_ = std::move(tell);
}

// Requires mutex_. Looks at all namespaces, which takes milliseconds, so at most once a second.
void NamespaceTable::make_room() {
  const TimePoint now = Clock::now();
  if (!has_pages_ || now < make_room_again_) return;
  make_room_again_ = now + kMakeRoomAgain;
  std::erase_if(by_id_, [&](const auto& entry) {
    const auto& [id, ns] = entry;
    const uint32_t pool_slot = ns->current().pool_slot;
    // Nobody can open it meanwhile, because that needs the mutex.
    if (ns.use_count() != 1 || has_pages_(pool_slot)) return false;
    on_forgotten_(pool_slot);
    if (--of_user_[ns->user_] == 0) of_user_.erase(ns->user_);
    return true;
  });
  std::erase_if(unopened_, [&](const auto& entry) { return !has_pages_(entry.second); });
}

uint64_t NamespaceTable::epoch_of(const Digest& id) const {
  std::lock_guard lock(mutex_);
  return known_epoch(id);
}

uint64_t NamespaceTable::known_epoch(const Digest& id) const {
  const auto known = epochs_.find(id);
  return known == epochs_.end() ? 0 : known->second;
}

bool NamespaceTable::in_force(const Digest& id, uint64_t epoch) const {
  return epoch == epoch_of(id);
}

std::vector<std::pair<Digest, uint64_t>> NamespaceTable::epochs() const {
  std::lock_guard lock(mutex_);
  return {epochs_.begin(), epochs_.end()};
}

uint64_t NamespaceTable::epochs_mark() const {
  std::lock_guard lock(mutex_);
  return epochs_mark_;
}

bool NamespaceTable::raise(const Digest& id, uint64_t epoch, uint32_t& stale_slot) {
  stale_slot = 0;
  std::lock_guard lock(mutex_);
  const uint64_t before = known_epoch(id);
  if (epoch <= before) return false;
  if (before == 0 && epochs_.size() >= kNamespacesMax) return false;
  if (before != 0) epochs_mark_ ^= mark_of(id, before);
  epochs_mark_ ^= mark_of(id, epoch);
  epochs_[id] = epoch;
  if (auto unopened = unopened_.find(id); unopened != unopened_.end()) {
    stale_slot = unopened->second;
    unopened_.erase(unopened);
  }
  auto open = by_id_.find(id);
  if (open != by_id_.end()) {
    Namespace& ns = *open->second;
    std::lock_guard ns_lock(ns.mutex_);
    stale_slot = ns.epoch_.pool_slot;
    ns.epoch_ = {epoch, derive_namespace_key(cluster_key_, ns.name_, epoch), next_pool_slot_++};
    on_slot_(ns, ns.epoch_.pool_slot);
  }
  return true;
}

void NamespaceTable::for_each(const std::function<void(const Namespace&)>& visit) const {
  std::lock_guard lock(mutex_);
  for (const auto& [id, ns] : by_id_) visit(*ns);
}

std::shared_ptr<const Namespace> NamespaceTable::find(const Digest& id) const {
  std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::map<uint32_t, NamespaceTable::Identity> NamespaceTable::by_pool_slot() const {
  std::lock_guard lock(mutex_);
  std::map<uint32_t, Identity> found;
  for (const auto& [id, ns] : by_id_) found[ns->current().pool_slot] = {id, known_epoch(id)};
  for (const auto& [id, pool_slot] : unopened_) found[pool_slot] = {id, known_epoch(id)};
  return found;
}

void NamespaceTable::judge(std::span<PageNamespace> found) {
  uint32_t stale_slot = 0;  // unused: no namespace has a slot yet
  for (const PageNamespace& ns : found) raise(ns.id, ns.epoch, stale_slot);
  for (PageNamespace& ns : found) ns.slot = pool_slot_of(ns.id, ns.epoch);
}

uint32_t NamespaceTable::pool_slot_of(const Digest& id, uint64_t epoch) {
  std::lock_guard lock(mutex_);
  if (epoch != known_epoch(id)) return 0;
  auto open = by_id_.find(id);
  if (open != by_id_.end()) return open->second->current().pool_slot;
  auto unopened = unopened_.find(id);
  if (unopened != unopened_.end()) return unopened->second;
  if (!has_room()) make_room();
  if (!has_room()) return 0;
  return unopened_.emplace(id, next_pool_slot_++).first->second;
}

}  // namespace peercached
