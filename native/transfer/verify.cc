#include "transfer/verify.h"

#include <cstring>
#include <optional>
#include <utility>

#include "common/copy.h"
#include "common/fault_guard.h"

namespace peercached {
namespace {

bool names_the_record(const ReadBatch& batch, const ReadOp& op) {
  const SlotHeader& h = op.header;
  return h.digest == op.digest && h.incarnation == batch.incarnation &&
         h.generation == op.generation && h.length == op.length;
}

}  // namespace

void VerifyingSink::landed(const ReadBatch& batch, ReadOp& op) {
  // Reset here, so that it cannot pass for a check of a later attempt.
  std::optional<uint64_t> sum = std::exchange(op.checksum, std::nullopt);
  const bool same = std::memcmp(&op.header, &op.again, sizeof op.header) == 0;
  if (!same || !sealed(op.header) || !names_the_record(batch, op)) {
    op.status = PageStatus::stale;
    return;
  }
  if (mode_ == Verify::checksum && !op.to_device) {
    if (!sum) {
      // This touches worker memory, which the worker may have truncated meanwhile.
      uint64_t own = 0;
      if (!guarded(op.dest, op.length, [&] { own = checksum(op.dest, op.length); })) {
        op.status = PageStatus::region_lost;
        return;
      }
      sum = own;
    }
    if (*sum != op.header.checksum) {
      // Retried like any stale page, but counted apart. A slot that was merely reused has failed
      // the checks above.
      op.corrupt = true;
      op.status = PageStatus::stale;
      return;
    }
  }
  op.status = PageStatus::ok;
}

}  // namespace peercached
