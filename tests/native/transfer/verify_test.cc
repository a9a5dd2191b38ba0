// The verifier accepts only the page of its record: one different field means another page.

#include "transfer/verify.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "common/copy.h"
#include "common/fault_guard.h"

namespace peercached {
namespace {

class Verifier : public ::testing::Test {
 protected:
  Verifier() {
    op.digest = {1, 2};
    op.generation = 5;
    op.length = static_cast<uint32_t>(payload.size());
    op.dest = payload.data();
    op.header.digest = op.digest;
    op.header.incarnation = batch.incarnation;
    op.header.generation = op.generation;
    op.header.length = op.length;
    op.header.checksum = checksum(payload.data(), payload.size());
    op.header.state = kSlotCommitted;
    op.header.version = kSlotVersion;
    seal(op.header);
    op.again = op.header;
  }
  // The result after `change`, in a newly sealed header: valid, but of something else.
  PageStatus landed(Verify mode, const std::function<void(SlotHeader&)>& change) {
    ReadOp landing = op;
    change(landing.header);
    seal(landing.header);
    landing.again = landing.header;
    VerifyingSink(mode).landed(batch, landing);
    return landing.status;
  }

  std::vector<std::byte> payload = std::vector<std::byte>(5000, std::byte{7});
  ReadBatch batch{3, 4711, {}};
  ReadOp op;
};

TEST_F(Verifier, TakesThePageOfTheRecordAndNoOther) {
  for (Verify mode : {Verify::header, Verify::checksum}) {
    EXPECT_EQ(landed(mode, [](SlotHeader&) {}), PageStatus::ok);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { ++h.digest.hi; }), PageStatus::stale);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { ++h.digest.lo; }), PageStatus::stale);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { ++h.incarnation; }), PageStatus::stale);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { ++h.generation; }), PageStatus::stale);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { --h.generation; }), PageStatus::stale);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { ++h.length; }), PageStatus::stale);
    EXPECT_EQ(landed(mode, [](SlotHeader& h) { h.state = kSlotInvalid; }), PageStatus::stale);
  }
}

TEST_F(Verifier, RefusesBytesMismatchingTheHeadersChecksum) {
  payload[4999] ^= std::byte{1};
  EXPECT_EQ(landed(Verify::checksum, [](SlotHeader&) {}), PageStatus::stale);
}

TEST_F(Verifier, RefusesAPageWithAHeaderChangedDuringTheRead) {
  ++op.again.generation;
  seal(op.again);
  VerifyingSink(Verify::header).landed(batch, op);
  EXPECT_EQ(op.status, PageStatus::stale);
}

TEST_F(Verifier, FlagsCorruptPagesAmongStaleOnes) {
  ReadOp reused = op;
  ++reused.generation;
  VerifyingSink(Verify::checksum).landed(batch, reused);
  EXPECT_FALSE(reused.corrupt);
  payload[0] ^= std::byte{1};
  VerifyingSink(Verify::checksum).landed(batch, op);
  EXPECT_EQ(op.status, PageStatus::stale);
  EXPECT_TRUE(op.corrupt);
}

TEST_F(Verifier, ComparesTheEnginesChecksumWithTheHeader) {
  op.checksum = checksum(payload.data(), payload.size());
  EXPECT_EQ(landed(Verify::checksum, [](SlotHeader&) {}), PageStatus::ok);
  *op.checksum ^= 1;
  VerifyingSink(Verify::checksum).landed(batch, op);
  EXPECT_EQ(op.status, PageStatus::stale);
  EXPECT_TRUE(op.corrupt);
  EXPECT_FALSE(op.checksum) << "it must not speak for the bytes of another try";
}

TEST_F(Verifier, TakesNoHeaderThatIsNotSealed) {
  op.header.check ^= 1;
  VerifyingSink(Verify::header).landed(batch, op);
  EXPECT_EQ(op.status, PageStatus::stale);
}

TEST_F(Verifier, SurvivesWorkerMemoryTruncatedAfterLanding) {
  install_fault_guard();
  const int fd = memfd_create("region", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 5000), 0);
  void* region = mmap(nullptr, 5000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(region, MAP_FAILED);
  ASSERT_EQ(ftruncate(fd, 0), 0);
  op.dest = static_cast<std::byte*>(region);
  EXPECT_EQ(landed(Verify::checksum, [](SlotHeader&) {}), PageStatus::region_lost);
  munmap(region, 5000);
  close(fd);
}

}  // namespace
}  // namespace peercached
