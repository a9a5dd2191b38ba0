#include "engine/storage/quotas.h"

#include <fnmatch.h>

#include <algorithm>

namespace peercached {

void Quotas::set_rules(std::vector<QuotaRule> rules) {
  const std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
  for (const auto& [pool_slot, open] : open_) apply(pool_slot, open);
}

void Quotas::opened(const Namespace& ns, uint32_t pool_slot) {
  const std::lock_guard lock(mutex_);
  apply(pool_slot, open_[pool_slot] = {ns.name(), ns.id()});
}

void Quotas::apply(uint32_t pool_slot, const Open& open) {
  const auto rule = std::ranges::find_if(rules_, [&](const QuotaRule& one) {
    return ::fnmatch(one.pattern.c_str(), open.name.c_str(), 0) == 0;
  });
  const bool has_rule = rule != rules_.end();
  if (has_rule) {
    told_.try_emplace(pool_slot, 0);
    pool_.set_quota(pool_slot, rule->pool_bytes);
  } else if (told_.erase(pool_slot) != 0) {
    pool_.drop_quota(pool_slot);
  }
  // The disk knows namespaces by id, also those that were open under other rules.
  if (disk_.enabled()) {
    const auto disk_bytes = has_rule ? rule->disk_bytes : std::nullopt;
    disk_.tier().set_quota(open.id, disk_bytes.value_or(UINT64_MAX));
  }
}

void Quotas::void_slot(uint32_t pool_slot) {
  const std::lock_guard lock(mutex_);
  open_.erase(pool_slot);
  if (told_.erase(pool_slot) != 0) pool_.drop_quota(pool_slot);
}

void Quotas::write(JsonWriter& json) const {
  json.key("quotas").open('[');
  const std::lock_guard lock(mutex_);
  size_t shown = 0;
  for (const auto& [pool_slot, refused] : told_) {
    if (++shown > kShownMax) break;
    const Open& holder = open_.at(pool_slot);
    const NamespaceUse use = pool_.use_of(pool_slot);
    json.open('{').field("namespace", holder.name).field("bytes", use.bytes);
    json.field("quota_bytes", use.quota_bytes).field("evictions", use.evictions);
    json.field("refused", use.refused);
    if (disk_.enabled()) {
      const DiskNamespaceUse disk = disk_.tier().use_of(holder.id);
      json.field("disk_bytes", disk.room_bytes).field("disk_skipped", disk.skipped_pages);
      if (disk.quota_bytes != UINT64_MAX) json.field("disk_quota_bytes", disk.quota_bytes);
    }
    json.close('}');
  }
  json.close(']');
}

void Quotas::notify(Notices& notices, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (now - told_at_ < kTellEvery) return;
  told_at_ = now;
  for (auto& [pool_slot, told] : told_) {
    const NamespaceUse use = pool_.use_of(pool_slot);
    if (use.refused == told) continue;
    notices.say("quota", "refused " + std::to_string(use.refused - told) + " pages of namespace '" +
                             open_.at(pool_slot).name + "': its quota of " +
                             std::to_string(use.quota_bytes) +
                             " bytes is full of pages in use, or a page is larger than the quota");
    told = use.refused;
  }
}

}  // namespace peercached
