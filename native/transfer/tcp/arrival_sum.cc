#include "transfer/tcp/arrival_sum.h"

#include "common/fault_guard.h"

namespace peercached::tcp {

// Reading `dest` touches worker memory, which the worker may have truncated meanwhile. Then the
// sink will meet the same fault and report it.
void ArrivalSum::arrived(const ReadOp& op, size_t payload_bytes) {
  if (op_ != &op) sum_ = RunningCopy(nullptr, op.dest);
  op_ = &op;
  if (!guarded(op.dest, op.length, [&] { sum_.advance(payload_bytes); })) op_ = nullptr;
}

void ArrivalSum::landed(ReadOp& op) {
  if (op_ != &op) return;
  op_ = nullptr;
  uint64_t sum = 0;
  if (guarded(op.dest, op.length, [&] { sum = sum_.finish(op.length); })) op.checksum = sum;
}

}  // namespace peercached::tcp
