// Each peer by its way, in one call.
#include <pthread.h>

#include "transfer/fixture.h"
#include "transfer/routed/routed_engine.h"

namespace peercached::testing {
namespace {

// Answers every page, and remembers of which peers.
template <typename Engine>
class Answering : public Engine {
 public:
  void add_peer(HolderIndex, const PeerEndpoint&) override {}
  void drop_peer(HolderIndex) override {}
  void read(std::span<ReadBatch> batches, Deadline, WriteGate&, PageSink&) override {
    for (ReadBatch& batch : batches) {
      peers.push_back(batch.peer);
      for (ReadOp& op : batch.ops) op.status = PageStatus::ok;
    }
  }
  std::vector<PeerHealth> health() const override { return {}; }
  const char* name() const override { return "answering"; }

  std::vector<HolderIndex> peers;
};

class AnsweringRdma final : public Answering<rdma::RdmaEngine> {
 public:
  void connected(HolderIndex, uint32_t, rdma::ChannelAnswer) override {}
  void refused(HolderIndex, uint32_t, const std::string&) override {}
  bool reaches(HolderIndex) const override { return reached; }
  void leave_rail(const rdma::Rail&) override {}

  bool reached = true;
};

// In this scope every new thread asks for more stack than there are addresses.
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
    auto made = std::make_unique<Answering<TransferEngine>>();
    tcp = made.get();
    engine = make_routed_engine(std::move(made), rdma, WithoutRails::use_tcp, counters);
    PeerEndpoint endpoint;
    endpoint.rails = 1;
    engine->add_peer(1, endpoint);
    endpoint.rails = 0;
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
  Answering<TransferEngine>* tcp = nullptr;
  std::unique_ptr<TransferEngine> engine;
};

TEST_F(Routed, EachPeerIsReadByItsWay) { read_from_both(); }

TEST_F(Routed, WithoutAThreadForTheSecondWayItIsTakenAfterTheFirst) {
  NoMoreThreads none;
  EXPECT_THROW(std::thread([] {}), std::system_error);
  read_from_both();
}

TEST_F(Routed, APeerThatNoRailReachesIsReadOverTcpUntilOneDoes) {
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
