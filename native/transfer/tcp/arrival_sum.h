// The checksum of the page that is arriving on one channel, made piece by piece while each piece is
// still in the cache. A page that came whole is left to the sink, which finds it there as well.
#pragma once

#include "common/copy.h"
#include "transfer/transfer.h"

namespace peercached::tcp {

class ArrivalSum {
 public:
  // The first `payload_bytes` of `op` are in its destination; fewer than all.
  void arrived(const ReadOp& op, size_t payload_bytes);
  // All are: sets op.checksum if it was begun.
  void landed(ReadOp& op);

 private:
  static void step(void* self);

  const ReadOp* op_ = nullptr;  // nullptr: none begun, or its memory went away
  RunningCopy sum_{nullptr, nullptr};
  size_t have_bytes_ = 0;
  uint64_t checksum_ = 0;
};

}  // namespace peercached::tcp
