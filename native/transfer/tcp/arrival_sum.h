// The checksum of the page that is arriving on one channel, computed piece by piece while each
// piece is still in the cache. If a page comes whole, the sink computes its checksum: it is still
// in the cache there, too.
#pragma once

#include "common/copy.h"
#include "transfer/transfer.h"

namespace peercached::tcp {

class ArrivalSum {
 public:
  // The first `payload_bytes` of `op` are in its destination, but not yet all.
  void arrived(const ReadOp& op, size_t payload_bytes);
  // The whole payload is there. Sets op.checksum if a sum was begun.
  void landed(ReadOp& op);

 private:
  const ReadOp* op_ = nullptr;  // nullptr: no sum begun, or the worker's memory went away
  RunningCopy sum_{nullptr, nullptr};
};

}  // namespace peercached::tcp
