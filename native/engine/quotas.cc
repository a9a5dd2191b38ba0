#include "engine/quotas.h"

#include <fnmatch.h>

namespace peercached {

void Quotas::opened(const Namespace& ns, uint32_t pool_slot) {
  for (const QuotaRule& rule : rules_) {
    if (::fnmatch(rule.pattern.c_str(), ns.name().c_str(), 0) != 0) continue;
    pool_.set_quota(pool_slot, rule.pool_bytes);
    if (rule.disk_bytes && cold_.enabled()) cold_.tier().set_quota(ns.id(), *rule.disk_bytes);
    const std::lock_guard lock(mutex_);
    holders_[pool_slot] = {ns.name(), ns.id()};
    return;
  }
}

void Quotas::void_slot(uint32_t pool_slot) {
  const std::lock_guard lock(mutex_);
  if (holders_.erase(pool_slot) != 0) pool_.drop_quota(pool_slot);
}

namespace {
void write_disk(JsonWriter& json, const DiskNamespaceUse& use) {
  json.field("disk_bytes", use.room_bytes).field("disk_skipped", use.skipped_pages);
  if (use.quota_bytes != UINT64_MAX) json.field("disk_quota_bytes", use.quota_bytes);
}
}  // namespace

void Quotas::write(JsonWriter& json) const {
  json.key("quotas").open('[');
  const std::lock_guard lock(mutex_);
  size_t shown = 0;
  for (const auto& [pool_slot, holder] : holders_) {
    if (++shown > kShownMax) break;
    const NamespaceUse use = pool_.use_of(pool_slot);
    json.open('{').field("namespace", holder.name).field("bytes", use.bytes);
    json.field("quota_bytes", use.quota_bytes).field("evictions", use.evictions);
    json.field("refused", use.refused);
    if (cold_.enabled()) write_disk(json, cold_.tier().use_of(holder.id));
    json.close('}');
  }
  json.close(']');
}

void Quotas::tell(Notices& notices, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (now - told_at_ < kTellEvery) return;
  told_at_ = now;
  for (auto& [pool_slot, holder] : holders_) {
    const NamespaceUse use = pool_.use_of(pool_slot);
    if (use.refused == holder.told) continue;
    notices.say("quota", "refused " + std::to_string(use.refused - holder.told) +
                             " pages of namespace '" + holder.name + "': its quota of " +
                             std::to_string(use.quota_bytes) +
                             " bytes is full of pages in use, or a page is larger than the quota");
    holder.told = use.refused;
  }
}

}  // namespace peercached
