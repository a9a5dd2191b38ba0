// Pages that a worker here set and a node had under the same key: whether their bytes are the same.
// An engine with other weights, scales or kernels sets other bytes.
#pragma once

#include "common/counter.h"

namespace peercached {

struct SameKeys {
  Counter compared, differed;

  void add(bool differs) {
    compared.add();
    if (differs) differed.add();
  }
  void reset() {
    compared.store(0);
    differed.store(0);
  }
};

}  // namespace peercached
