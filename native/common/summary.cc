#include "common/summary.h"

namespace peercached {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Every input bit reaches every
// output bit, so small differences do not cancel out in the sum.
uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t summary_term(const RecordRow& row) {
  const bool resident = row.flags & kRecordResident;
  const uint64_t state = resident ? (row.generation & ((uint64_t{1} << 48) - 1)) << 1 | 1
                                  : (uint64_t{row.check} << 32 | row.length) << 1;
  uint64_t term = mix(state);
  // Added between rounds. Under xor the digest's words and the rest could cancel.
  term = mix(term + row.digest.lo);
  return mix(term + row.digest.hi + 0x9e3779b97f4a7c15);
}

}  // namespace peercached
