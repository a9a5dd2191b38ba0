// Which namespaces have a quota of the pool: by patterns of their names, the first that fits.
// pool/quota.h keeps it. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/json.h"
#include "pool/pool.h"

namespace peercached {

struct QuotaRule {
  std::string pattern;  // as in a shell; * also stands for slashes
  uint64_t bytes = 0;
};

class Quotas {
 public:
  static constexpr size_t kShownMax = 256;  // in the status document

  explicit Quotas(Pool& pool) : pool_(pool) {}

  // Before any namespace is opened.
  void set_rules(std::vector<QuotaRule> rules) { rules_ = std::move(rules); }
  // `name` has that pool slot from now on.
  void opened(const std::string& name, uint32_t pool_slot);
  // The pages of that slot are void.
  void void_slot(uint32_t pool_slot);
  void write(JsonWriter& json) const;

 private:
  Pool& pool_;
  std::vector<QuotaRule> rules_;
  mutable std::mutex mutex_;
  std::map<uint32_t, std::string> names_;  // of namespaces with a quota, by pool slot
};

}  // namespace peercached
