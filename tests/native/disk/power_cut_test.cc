// The power goes. With SyncPolicy::batch, all pages reported written are there. With any policy, no
// page that is there has wrong bytes.
#include "crash_ledger.h"
#include "power_cut_io.h"

namespace peercached::disk {
namespace {

class DiskPowerCut : public DiskFixture, public ::testing::WithParamInterface<SyncPolicy> {
 protected:
  DiskPowerCut() {
    config.size_bytes = kMiB;
    config.segment_bytes = 64 * kKiB;
    config.sync = GetParam();
  }
};

TEST_P(DiskPowerCut, RecoveryMatchesTheSyncPolicy) {
  const char* asked = std::getenv("PEERCACHED_DISK_CRASHES");
  const unsigned count = asked == nullptr ? 15 : static_cast<unsigned>(std::atoi(asked));
  std::mt19937_64 random(GetParam() == SyncPolicy::batch ? 5 : 6);
  const auto ledger = std::unique_ptr<CrashLedger, void (*)(CrashLedger*)>(
      CrashLedger::make(), [](CrashLedger* it) { ::munmap(it, sizeof *it); });
  open();  // the directory itself is durable before the first cut
  close();
  unsigned cuts = 0;
  for (unsigned round = 0; round < count && !HasFailure(); ++round) {
    TemporaryDirectory attic;
    PowerCutIo io(attic.path(), 1 + random() % 150);
    try {
      open(io);
      // If the power is off from the start, segments can be neither read nor deleted. Removals of
      // their pages could not last.
      if (!io.dead()) crash_workload(*tier, *ledger, random(), 80);
      close();
    } catch (const DiskError&) {
    }
    cuts += io.dead();
    if (io.dead()) io.lose_unsynced(random);
    open();
    if (config.sync != SyncPolicy::batch) {  // no promises after a power cut
      for (auto& key : ledger->keys) {
        key.written = 0;
        key.removed = 0;
      }
    }
    check_ledger(*tier, *ledger, config.sync == SyncPolicy::batch ? config.size_bytes / 4 : 0);
    close();
  }
  EXPECT_GE(cuts, count / 2);
  EXPECT_GT(ledger->checks, 10u);
}

INSTANTIATE_TEST_SUITE_P(Policies, DiskPowerCut,
                         ::testing::Values(SyncPolicy::never, SyncPolicy::segment,
                                           SyncPolicy::batch));

}  // namespace
}  // namespace peercached::disk
