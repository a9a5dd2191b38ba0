// When a READ can be trusted. The header that came with the payload must be sealed and must name
// the digest, incarnation, generation and length of the record. It must be unchanged after the
// payload was read. The payload must have the header's checksum.
#pragma once

#include "transfer/transfer.h"

namespace peercached {

enum class Verify : uint8_t { header, checksum };

class VerifyingSink final : public PageSink {
 public:
  explicit VerifyingSink(Verify mode) : mode_(mode) {}
  // Sets ok, region_lost, or stale (with op.corrupt if only the checksum is wrong).
  void landed(const ReadBatch& batch, ReadOp& op) override;
  bool sums() const override { return mode_ == Verify::checksum; }

 private:
  Verify mode_;
};

}  // namespace peercached
