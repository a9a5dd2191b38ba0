#include "common/types.h"

#define XXH_INLINE_ALL
#include <sys/random.h>
#include <xxhash.h>

namespace peercached {

namespace {

TableSecret random_table_secret() {
  TableSecret secret;
  while (::getrandom(&secret, sizeof secret, 0) != sizeof secret) {
  }
  for (auto& factor : secret.factor) factor |= 1;
  return secret;
}

constexpr size_t kCheckedBytes = offsetof(SlotHeader, check);
static_assert(kCheckedBytes == 56);

}  // namespace

const TableSecret kTableSecret = random_table_secret();

void seal(SlotHeader& header) { header.check = XXH3_64bits(&header, kCheckedBytes); }

bool sealed(const SlotHeader& header) {
  return header.state == kSlotCommitted && header.version == kSlotVersion &&
         header.check == XXH3_64bits(&header, kCheckedBytes);
}

}  // namespace peercached
