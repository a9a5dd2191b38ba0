// One call that reads from several peers, each over its own transport.
#include <pthread.h>

#include <algorithm>

#include "transfer/fixture.h"
#include "transfer/rdma/rdma_engine.h"
#include "transfer/routed/routed_engine.h"

namespace peercached::testing {
namespace {

// Answers every page with ok, except chosen ones, and remembers the peers.
template <typename Engine>
class Answering : public Engine {
 public:
  void add_peer(HolderIndex, const PeerEndpoint&) override {}
  void drop_peer(HolderIndex) override {}
  void read(std::span<ReadBatch> batches, Deadline, WriteGate&, PageSink&) override {
    for (ReadBatch& batch : batches) {
      peers.push_back(batch.peer);
      pages += batch.ops.size();
      for (ReadOp& op : batch.ops) {
        op.status = op.offset < fails_below ? failure : PageStatus::ok;
      }
    }
  }
  std::vector<PeerHealth> health() const override { return {}; }
  const char* name() const override { return "answering"; }

  std::vector<HolderIndex> peers;
  size_t pages = 0;
  uint64_t fails_below = 0;  // offsets
  PageStatus failure = PageStatus::error;
};

class AnsweringTcp final : public Answering<TransferEngine> {
 public:
  void hold(std::span<HoldBatch>, uint32_t, Deadline) override {}
  void lookup(std::span<LookupBatch>, uint64_t, Deadline) override {}
  void push(std::span<PushBatch>, Deadline) override {}
};

class AnsweringRdma final : public Answering<rdma::RdmaEngine> {
 public:
  void connected(HolderIndex, uint32_t, rdma::ChannelAnswer) override {}
  void refused(HolderIndex, uint32_t, const std::string&) override {}
  bool reaches(HolderIndex) const override { return reached; }
  bool prove_doubted() override { return false; }
  void leave_rail(const rdma::Rail&) override {}
  std::vector<rdma::RailTrouble> troubles() const override { return {}; }

  bool reached = true;
};

// While it lives, each new thread asks for more stack than the address space has, and so fails.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 50);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

class Routed : public ::testing::Test {
 protected:
  Routed() {
    auto made = std::make_unique<AnsweringTcp>();
    tcp = made.get();
    engine = make_routed_engine(rdma, std::move(made), Unreached::use_other, counters);
    PeerEndpoint endpoint;
    endpoint.transports = {{"answering", ""}};
    engine->add_peer(1, endpoint);
    endpoint.transports = {};
    engine->add_peer(2, endpoint);
  }

  void read_from_both() {
    std::vector<ReadOp> from_one(2), from_two(3);
    std::vector<ReadBatch> batches{{1, 1, from_one}, {2, 1, from_two}};
    Gate gate;
    VerifyingSink sink(Verify::checksum);
    engine->read(batches, Deadline::after_ms(10'000), gate.gate, sink);
    for (const ReadOp& op : from_one) EXPECT_EQ(op.status, PageStatus::ok);
    for (const ReadOp& op : from_two) EXPECT_EQ(op.status, PageStatus::ok);
    EXPECT_EQ(rdma.peers, std::vector<HolderIndex>{1});
    EXPECT_EQ(tcp->peers, std::vector<HolderIndex>{2});
  }

  AnsweringRdma rdma;
  RoutedCounters counters;
  AnsweringTcp* tcp = nullptr;
  std::unique_ptr<TransferEngine> engine;
};

TEST_F(Routed, EachPeerIsReadByItsWay) { read_from_both(); }

TEST_F(Routed, SecondWayIsTakenAfterTheFirstWithoutAThread) {
  NoMoreThreads none;
  EXPECT_THROW(std::thread([] {}), std::system_error);
  read_from_both();
}

class RoutedAgain : public Routed {
 protected:
  RoutedAgain() {
    for (uint64_t i = 0; i < ops.size(); ++i) {
      ops[i].offset = i;
      ops[i].dest = memory + i;
    }
    rdma.fails_below = 2;
  }
  void read(int deadline_ms = 10'000) {
    std::vector<ReadBatch> batches{{1, 1, ops}};
    VerifyingSink sink(Verify::checksum);
    engine->read(batches, Deadline::after_ms(deadline_ms), gate.gate, sink);
  }
  size_t count(PageStatus status) const {
    return static_cast<size_t>(std::count_if(
        ops.begin(), ops.end(), [&](const ReadOp& op) { return op.status == status; }));
  }

  std::byte memory[5];
  std::vector<ReadOp> ops = std::vector<ReadOp>(5);
  Gate gate;
};

TEST_F(RoutedAgain, PagesFailedByRdmaComeOverTcpInTheSameCall) {
  read();
  EXPECT_EQ(count(PageStatus::ok), 5u);
  EXPECT_EQ(tcp->peers, std::vector<HolderIndex>{1});
  EXPECT_EQ(tcp->pages, 2u) << "and nothing else";
  EXPECT_FALSE(ops[0].one_sided);
  EXPECT_TRUE(ops[2].one_sided);
  for (size_t i = 0; i < ops.size(); ++i) EXPECT_EQ(ops[i].dest, memory + i);
  EXPECT_EQ(counters.fallback_reads, 1u);
}

TEST_F(RoutedAgain, DeviceMemoryIsNotRetriedOverTcp) {
  ops[0].to_device = true;
  read();
  EXPECT_EQ(ops[0].status, PageStatus::error);
  EXPECT_EQ(ops[1].status, PageStatus::ok);
}

TEST_F(RoutedAgain, StalePageIsNotRetriedOverTcp) {
  rdma.failure = PageStatus::stale;
  read();
  EXPECT_EQ(count(PageStatus::stale), 2u);
  EXPECT_TRUE(tcp->peers.empty());
}

TEST_F(RoutedAgain, NothingIsRetriedAfterTheDeadlineOrFence) {
  read(0);
  EXPECT_EQ(count(PageStatus::error), 2u);
  gate.fence();
  read();
  EXPECT_EQ(count(PageStatus::error), 2u);
  EXPECT_TRUE(tcp->peers.empty());
}

TEST_F(RoutedAgain, NothingIsRetriedWhenOnlyRdmaIsAllowed) {
  PeerEndpoint endpoint;
  endpoint.transports = {{"answering", ""}};
  auto none = std::make_unique<AnsweringTcp>();
  tcp = none.get();
  engine = make_routed_engine(rdma, std::move(none), Unreached::fail, counters);
  engine->add_peer(1, endpoint);
  read();
  EXPECT_EQ(count(PageStatus::error), 2u);
  EXPECT_TRUE(tcp->peers.empty());
}

TEST_F(Routed, UnreachedPeerIsReadOverTcpUntilARailReachesIt) {
  std::vector<ReadOp> ops(1);
  std::vector<ReadBatch> batches{{1, 1, ops}};
  Gate gate;
  VerifyingSink sink(Verify::checksum);
  const auto read = [&] { engine->read(batches, Deadline::after_ms(10'000), gate.gate, sink); };
  rdma.reached = false;
  read();
  read();
  EXPECT_TRUE(rdma.peers.empty());
  EXPECT_EQ(tcp->peers.size(), 2u);
  EXPECT_EQ(counters.fallback_reads, 2u);
  EXPECT_EQ(counters.fallback_peers, 1u);
  rdma.reached = true;
  read();
  EXPECT_EQ(rdma.peers, std::vector<HolderIndex>{1});
  EXPECT_EQ(counters.fallback_peers, 0u);
  rdma.reached = false;
  read();
  engine->drop_peer(1);
  EXPECT_EQ(counters.fallback_peers, 0u);
}

}  // namespace
}  // namespace peercached::testing
