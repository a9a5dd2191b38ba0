#include "engine/quotas.h"

#include <fnmatch.h>

namespace peercached {

void Quotas::opened(const std::string& name, uint32_t pool_slot) {
  for (const QuotaRule& rule : rules_) {
    if (::fnmatch(rule.pattern.c_str(), name.c_str(), 0) != 0) continue;
    pool_.set_quota(pool_slot, rule.bytes);
    const std::lock_guard lock(mutex_);
    names_[pool_slot] = name;
    return;
  }
}

void Quotas::void_slot(uint32_t pool_slot) {
  const std::lock_guard lock(mutex_);
  if (names_.erase(pool_slot) != 0) pool_.drop_quota(pool_slot);
}

void Quotas::write(JsonWriter& json) const {
  json.key("quotas").open('[');
  const std::lock_guard lock(mutex_);
  size_t shown = 0;
  for (const auto& [pool_slot, name] : names_) {
    if (++shown > kShownMax) break;
    const NamespaceUse use = pool_.use_of(pool_slot);
    json.open('{').field("namespace", name).field("bytes", use.bytes);
    json.field("quota_bytes", use.quota_bytes).field("evictions", use.evictions);
    json.field("refused", use.refused).close('}');
  }
  json.close(']');
}

}  // namespace peercached
