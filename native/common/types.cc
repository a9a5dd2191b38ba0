#include "common/types.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace peercached {

namespace {
constexpr size_t kCheckedBytes = offsetof(SlotHeader, check);
static_assert(kCheckedBytes == 56);
}  // namespace

void seal(SlotHeader& header) { header.check = XXH3_64bits(&header, kCheckedBytes); }

bool sealed(const SlotHeader& header) {
  return header.state == kSlotCommitted && header.version == kSlotVersion &&
         header.check == XXH3_64bits(&header, kCheckedBytes);
}

}  // namespace peercached
