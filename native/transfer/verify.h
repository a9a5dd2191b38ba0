// Why a READ may be trusted (DESIGN 6.3): the header that came with the payload must be
// sealed and name the digest, incarnation, generation and length of the record, and the
// payload must have the header's checksum.
#pragma once

#include "transfer/transfer.h"

namespace peercached {

enum class Verify : uint8_t { header, checksum };

class VerifyingSink final : public PageSink {
 public:
  explicit VerifyingSink(Verify mode) : mode_(mode) {}
  void landed(const ReadBatch& batch, ReadOp& op) override;  // ok or stale
  bool sums() const override { return mode_ == Verify::checksum; }

 private:
  Verify mode_;
};

}  // namespace peercached
