#include "transfer/tcp/arrival_sum.h"

#include "common/fault_guard.h"

namespace peercached::tcp {

// Reading `dest` touches worker memory, which the worker may have truncated meanwhile. Then the
// sink will meet the same fault and report it.
void ArrivalSum::arrived(const ReadOp& op, size_t payload_bytes) {
  if (op_ != &op) sum_ = RunningCopy(nullptr, op.dest);
  op_ = &op;
  have_bytes_ = payload_bytes;
  if (!guarded(op.dest, op.length, step, this)) op_ = nullptr;
}

void ArrivalSum::landed(ReadOp& op) {
  if (op_ != &op) return;
  have_bytes_ = op.length;
  if (guarded(op.dest, op.length, step, this)) op.checksum = checksum_;
  op_ = nullptr;
}

void ArrivalSum::step(void* self) {
  auto& arrival = *static_cast<ArrivalSum*>(self);
  if (arrival.have_bytes_ < arrival.op_->length)
    arrival.sum_.advance(arrival.have_bytes_);
  else
    arrival.checksum_ = arrival.sum_.finish(arrival.have_bytes_);
}

}  // namespace peercached::tcp
