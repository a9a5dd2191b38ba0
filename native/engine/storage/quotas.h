// Quotas of namespaces, for pool and disk: the first rule with a pattern that fits the name
// applies. pool/quota.h and disk/namespace_numbers.h enforce them. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/notices.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/namespaces.h"
#include "pool/pool.h"

namespace peercached {

struct QuotaRule {
  std::string pattern;  // as in a shell; * also matches slashes
  uint64_t pool_bytes = 0;
  std::optional<uint64_t> disk_bytes;  // of payloads; nullopt: no quota there
};

class Quotas {
 public:
  static constexpr size_t kShownMax = 256;  // in the status document
  static constexpr std::chrono::seconds kTellEvery{1};

  Quotas(Pool& pool, DiskPages& disk) : pool_(pool), disk_(disk) {}

  // They hold for open namespaces at once. A namespace above a lower quota stays there until it
  // sets its next page.
  void set_rules(std::vector<QuotaRule> rules);
  // The namespace has that pool slot from now on.
  void opened(const Namespace& ns, uint32_t pool_slot);
  // The slot's pages are void, so its quota ends.
  void void_slot(uint32_t pool_slot);
  void write(JsonWriter& json) const;
  // Reports namespaces with pages refused since the last report, at most once a second.
  void notify(Notices& notices, TimePoint now = Clock::now());

 private:
  struct Open {
    std::string name;
    Digest id;
  };
  void apply(uint32_t pool_slot, const Open& open);  // with mutex_
  Pool& pool_;
  DiskPages& disk_;
  mutable std::mutex mutex_;
  std::vector<QuotaRule> rules_;
  std::map<uint32_t, Open> open_;  // by pool slot
  // Those with a quota: pages refused, as of the last notify().
  std::map<uint32_t, uint64_t> told_;
  TimePoint told_at_{};
};

}  // namespace peercached
