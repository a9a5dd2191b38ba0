#include "common/types.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <random>

namespace peercached {

namespace {

TableSecret random_table_secret() {
  std::random_device random;  // the kernel's
  const auto word = [&] { return uint64_t{random()} << 32 | random(); };
  TableSecret secret;
  for (int round = 0; round < 2; ++round) {
    secret.mask[round] = word();
    secret.factor[round] = word() | 1;
  }
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
