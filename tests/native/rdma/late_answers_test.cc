// Bytes that arrive after their read has ended, over soft-RoCE with a delay in one direction.
#include <algorithm>

#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

// While it lives, all packets from a network device are delayed.
class SlowWire {
 public:
  SlowWire(std::string netdev, int ms) : netdev_(std::move(netdev)) {
    tc("add", "netem limit 100000 delay " + std::to_string(ms) + "ms");
  }
  ~SlowWire() { tc("del", ""); }

 private:
  void tc(const std::string& what, const std::string& how) const {
    const std::string command = "tc qdisc " + what + " dev " + netdev_ + " root " + how;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  const std::string netdev_;
};

class RdmaLateAnswers : public RdmaTest, public ::testing::WithParamInterface<bool> {};

TEST_P(RdmaLateAnswers, AreNotWritten) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  rdma::LinkSettings patient;
  patient.timeout = 18;  // a second until a retransmission
  RdmaReader reader(holder, {"rxe1"}, 8, patient);
  const std::vector<RecordRow> rows = holder.set_many(0, 40, 60'000);
  const auto arrives = [&] {
    Reading reading(rows);
    reader.read(reading);
    return reading.count(PageStatus::ok) == rows.size();
  };
  ASSERT_TRUE(eventually(arrives));  // now there is a channel
  // Not scaled for slow machines: a rail that is silent for longer counts as dead.
  const SlowWire wire("rdma0", 800);
  Reading late(rows);
  reader.fabric.regions().add(late.memory.data(), late.memory.size());
  std::thread fencing([&] {
    if (!GetParam()) return;
    EXPECT_TRUE(eventually([&] { return !late.gate.quiet(); }));
    late.gate.fence();
  });
  late.read(reader.fabric.engine(), GetParam() ? patient_ms(10'000) : 300);
  fencing.join();
  EXPECT_EQ(late.count(PageStatus::deadline), rows.size());
  EXPECT_TRUE(is_painted(late.memory.data(), late.memory.size()));
  // Packets keep their order. As this later answer has arrived, so had the late bytes.
  EXPECT_TRUE(eventually(arrives));
  EXPECT_TRUE(is_painted(late.memory.data(), late.memory.size()));
  reader.fabric.regions().remove(late.memory.data());
}

// Meanwhile the call has continued on another rail, and the worker may reuse its memory.
TEST(RdmaLateAnswersElsewhere, AreNotWrittenWhenAnotherRailHasBroughtThePages) {
  install_fault_guard();
  RdmaHolder holder(64 << 20, {"rxe0", "rxe2"});
  rdma::LinkSettings patient;
  patient.timeout = 18;  // a second until a retransmission
  RdmaReader reader(holder, {"rxe1", "rxe3"}, 8, patient);
  const std::vector<RecordRow> rows = holder.set_many(0, 24, 200'000);
  const auto& rails = reader.fabric.rails();
  ASSERT_TRUE(eventually([&] {
    Reading reading(rows);
    reader.read(reading);
    return rails[0]->counters.bytes > 0 && rails[1]->counters.bytes > 0;
  }));
  const SlowWire wire("rdma0", 800);
  Reading late(rows);
  reader.fabric.regions().add(late.memory.data(), late.memory.size());
  const TimePoint began = Clock::now();
  late.read(reader.fabric.engine(), 1500);  // the rail is late after a quarter of that
  const auto took = Clock::now() - began;
  expect_pages(late, 0);
  EXPECT_EQ(reader.troubles().size(), 1u);
  std::fill(late.memory.begin(), late.memory.end(), kPaint);
  // Packets keep their order. As this later answer has arrived, so had the late bytes.
  rdma::Channel behind(*rails[0], 1000);
  behind.connect(
      holder.fabric.responder().accept("other", kReaderIncarnation, behind.own_end(), {}));
  behind.ask();
  EXPECT_TRUE(eventually([&] { return behind.answered(); }));
  (void)reader.fabric.engine().reaches(kPeer);
  // A proof may take as long as the read that raised the doubt: on an emulated machine, long
  // enough.
  if (took < std::chrono::milliseconds(700)) {
    EXPECT_EQ(reader.troubles().size(), 1u) << "so slow a rail would make the next read late, too";
  }
  EXPECT_TRUE(is_painted(late.memory.data(), late.memory.size()));
  reader.fabric.regions().remove(late.memory.data());
}

INSTANTIATE_TEST_SUITE_P(Ends, RdmaLateAnswers, ::testing::Bool(), [](const auto& test) {
  return test.param ? "AfterAFence" : "AfterADeadline";
});

}  // namespace
}  // namespace peercached::testing
