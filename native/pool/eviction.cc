#include "pool/eviction.h"

#include "pool/recency.h"

namespace peercached {

std::unique_ptr<EvictionPolicy> make_eviction_policy(SlotTable& slots, Space& space,
                                                     Namespaces& namespaces) {
  return std::make_unique<Recency>(slots, space, namespaces);
}

}  // namespace peercached
