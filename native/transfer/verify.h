// Why a READ may be trusted: the header that came with the payload must be
// sealed, name the digest, incarnation, generation and length of the record, and be the same
// after the payload was read; and the payload must have the header's checksum.
#pragma once

#include "transfer/transfer.h"

namespace peercached {

enum class Verify : uint8_t { header, checksum };

class VerifyingSink final : public PageSink {
 public:
  explicit VerifyingSink(Verify mode) : mode_(mode) {}
  // ok, stale (op.corrupt: only the checksum is wrong) or region_lost
  void landed(const ReadBatch& batch, ReadOp& op) override;
  bool sums() const override { return mode_ == Verify::checksum; }

 private:
  Verify mode_;
};

}  // namespace peercached
