#include "transfer/fault/fault.h"

#include <stdexcept>

#include "transfer/tcp_fixture.h"

namespace peercached::testing {
namespace {

class Faults : public TcpTest {
 protected:
  Faults() {
    for (uint64_t i = 0; i < 200; ++i) {
      rows.push_back(holder.set(i, static_cast<uint32_t>(1 + i * 37 % 5000)));
    }
  }
  std::unique_ptr<TransferEngine> engine_with(const std::string& plan) {
    auto engine = make_faulty(make_reader(watcher), parse_fault_plan(plan), watcher);
    engine->add_peer(kPeer, holder.endpoint());
    return engine;
  }

  Holder holder{16 << 20};
  std::vector<RecordRow> rows;
};

size_t wrong_pages_called_ok(const Reading& reading) {
  size_t wrong = 0;
  for (size_t i = 0; i < reading.ops.size(); ++i) {
    const ReadOp& op = reading.ops[i];
    if (op.status == PageStatus::ok && !is_page(op.dest, op.length, i)) ++wrong;
  }
  return wrong;
}

TEST_F(Faults, NoDamagedPageIsEverOkWhenChecksumsAreVerified) {
  auto engine = engine_with("seed=1,corrupt=0.4,truncate=0.4");
  for (int round = 0; round < 20; ++round) {
    Reading reading(rows);
    reading.read(*engine);
    EXPECT_EQ(wrong_pages_called_ok(reading), 0u);
    EXPECT_GT(reading.count(PageStatus::ok), 0u);
    EXPECT_GT(reading.count(PageStatus::stale), 100u);
  }
}

TEST_F(Faults, LargePageDamagedAfterItsChecksumIsNeverOk) {
  // Large pages come in pieces. The engine sums each one before the injector damages it.
  rows.clear();
  for (uint64_t i = 0; i < 6; ++i) rows.push_back(holder.set(1000 + i, 2'000'000));
  auto engine = engine_with("seed=1,corrupt=0.4,truncate=0.4");
  size_t ok = 0, stale = 0;
  for (int round = 0; round < 10; ++round) {
    Reading reading(rows);
    reading.read(*engine);
    for (size_t i = 0; i < rows.size(); ++i) {
      const ReadOp& op = reading.ops[i];
      EXPECT_TRUE(op.status != PageStatus::ok || is_page(op.dest, op.length, 1000 + i));
    }
    ok += reading.count(PageStatus::ok);
    stale += reading.count(PageStatus::stale);
  }
  EXPECT_GT(ok, 0u);
  EXPECT_GT(stale, 20u);
}

TEST_F(Faults, DamagedPayloadsGetThroughWhenOnlyHeadersAreVerified) {
  // Proves the test above: without checksums, damaged pages count as ok.
  auto engine = engine_with("seed=1,corrupt=0.4,truncate=0.4");
  Reading reading(rows);
  reading.read(*engine, 10'000, Verify::header);
  EXPECT_GT(wrong_pages_called_ok(reading), 50u);
  EXPECT_GT(reading.count(PageStatus::stale), 0u) << "damaged headers are found even so";
}

TEST_F(Faults, TheSameSeedGivesTheSameFaults) {
  const auto statuses = [&](const std::string& plan) {
    auto engine = engine_with(plan);
    std::vector<PageStatus> all;
    for (int round = 0; round < 3; ++round) {
      Reading reading(rows);
      reading.read(*engine);
      for (const ReadOp& op : reading.ops) all.push_back(op.status);
    }
    return all;
  };
  const std::string faults = ",drop=0.2,corrupt=0.2,truncate=0.1,reset=0.2";
  EXPECT_EQ(statuses("seed=5" + faults), statuses("seed=5" + faults));
  EXPECT_NE(statuses("seed=5" + faults), statuses("seed=6" + faults));
}

TEST_F(Faults, ADroppedPageIsAnErrorAndTheOthersArrive) {
  auto engine = engine_with("seed=2,drop=0.3");
  Reading reading(rows);
  reading.read(*engine);
  EXPECT_GT(reading.count(PageStatus::error), 20u);
  EXPECT_EQ(reading.count(PageStatus::error) + reading.count(PageStatus::ok), rows.size());
  EXPECT_EQ(wrong_pages_called_ok(reading), 0u);
}

TEST_F(Faults, ADelayedPageArrivesAllTheSame) {
  auto engine = engine_with("seed=2,delay=0.2,delay_us_max=300");
  Reading reading(rows);
  reading.read(*engine);
  EXPECT_EQ(reading.count(PageStatus::ok), rows.size());
}

TEST_F(Faults, AResetIsAnErrorForTheBatchAndReported) {
  auto engine = engine_with("reset=1");
  Reading reading(rows);
  reading.read(*engine);
  EXPECT_EQ(reading.count(PageStatus::error), rows.size());
  EXPECT_EQ(watcher.troubles().size(), 1u);
}

TEST_F(Faults, AHangEndsAtTheDeadlineAndWritesNothing) {
  auto engine = engine_with("hang=1");
  Reading reading(rows);
  const TimePoint start = Clock::now();
  reading.read(*engine, 30);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(29));
  EXPECT_EQ(reading.count(PageStatus::deadline), rows.size());
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
}

TEST_F(Faults, AFencedGateStopsTheInjectorToo) {
  auto engine = engine_with("truncate=1");
  Reading reading(rows);
  reading.gate.fence();
  reading.read(*engine);
  EXPECT_EQ(reading.count(PageStatus::ok), 0u);
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
}

TEST(FaultPlans, AreReadFromText) {
  const FaultPlan plan = parse_fault_plan("seed=7,corrupt=0.01,hang=0.001,delay_us_max=50");
  EXPECT_EQ(plan.seed, 7u);
  EXPECT_EQ(plan.corrupt, 0.01);
  EXPECT_EQ(plan.hang, 0.001);
  EXPECT_EQ(plan.delay_us_max, 50u);
  EXPECT_TRUE(plan.any());
  EXPECT_FALSE(parse_fault_plan("").any());
}

TEST(FaultPlans, BadPlanIsRefusedWithItsBadPart) {
  for (const char* bad : {"corrupt", "corrupt=", "corrupt=two", "corrupt=1.5", "corrupt=-1",
                          "corrupt=nan", "flood=1", "seed=-1", "seed=1.5", "delay_us_max=0"}) {
    try {
      parse_fault_plan(std::string("seed=1,") + bad);
      ADD_FAILURE() << bad;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("'" + std::string(bad) + "'"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(parse_fault_plan("drop=0.6,corrupt=0.6"), std::invalid_argument);
}

}  // namespace
}  // namespace peercached::testing
