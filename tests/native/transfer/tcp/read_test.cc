// Reader and holder together, over 127.0.0.1.
#include "transfer/tcp_fixture.h"

namespace peercached::testing {
namespace {

// Plain and sealed connections.
class TcpRead : public TcpTest, public ::testing::WithParamInterface<bool> {
 protected:
  static TcpServerConfig port() {
    TcpServerConfig config;
    config.sealed = GetParam();
    return config;
  }
  // A holder, and a reader that knows it.
  void open(uint64_t pool_bytes, const TcpEngineConfig& reader = {},
            const TcpServerConfig& config = port()) {
    holder.emplace(pool_bytes, config);
    engine = reader_of(holder->endpoint(), reader);
  }

  std::optional<Holder> holder;
  std::unique_ptr<TransferEngine> engine;
};

TEST_P(TcpRead, EveryMixOfSizesArrivesByteForByte) {
  open(256 << 20);
  read_mixes(*holder, [&](const auto& rows, uint64_t first) { expect_read(*engine, rows, first); });
  EXPECT_TRUE(watcher.troubles().empty());
  EXPECT_EQ(holder->server->stats().bad_frames, 0u);
  EXPECT_TRUE(eventually([&] { return holder->pins() == 0; }));
}

TEST_P(TcpRead, FiveThousandPagesAreOneCall) {
  open(64 << 20);
  std::vector<RecordRow> rows;
  for (uint64_t i = 0; i < 5000; ++i) rows.push_back(holder->set(i, 1000 + i % 3000));
  expect_read(*engine, rows, 0);
  EXPECT_EQ(engine->health().at(0).pages, 5000u);
  EXPECT_TRUE(eventually([&] { return holder->server->stats().pages == 5000; }));
}

TEST_P(TcpRead, ManyThreadsShareFewChannels) {
  TcpEngineConfig config;
  config.channels_per_peer_max = 2;
  open(64 << 20, config);
  const std::vector<RecordRow> rows = holder->set_many(0, 40, 60'000);
  on_threads(8, [&] { expect_read(*engine, rows, 0); });
  EXPECT_LE(holder->server->stats().accepted, 2u);
}

TEST_P(TcpRead, SeveralPeersAreReadInOneCall) {
  Holder one(16 << 20, port()), two(16 << 20, port());
  engine = make_reader(watcher);
  engine->add_peer(1, one.endpoint());
  engine->add_peer(2, two.endpoint());
  std::vector<RecordRow> rows_one, rows_two;
  for (uint64_t i = 0; i < 50; ++i) {
    rows_one.push_back(one.set(i, 50'000));
    rows_two.push_back(two.set(100 + i, 50'000));
  }
  Reading a(rows_one, 1), b(rows_two, 2);
  std::vector<ReadBatch> batches = {a.batch, b.batch};
  VerifyingSink sink(Verify::checksum);
  engine->read(batches, Deadline::after_ms(10'000), a.gate.gate, sink);
  expect_pages(a, 0);
  expect_pages(b, 100);
}

TEST_P(TcpRead, ReusedSlotIsStaleAndNotServed) {
  open(1 << 20);
  const RecordRow kept = holder->set(1, 30'000);
  RecordRow reused = holder->set(2, 30'000);
  std::vector<RecordRow> withdrawn;
  holder->pool.remove({&reused.digest, 1}, withdrawn);
  const RecordRow next = holder->set(3, 30'000);
  RecordRow wrong_length = kept;
  wrong_length.length = 29'999;
  RecordRow beyond = kept;
  beyond.offset = 1ull << 60;
  RecordRow odd = kept;
  odd.offset += 8;
  Reading reading({kept, reused, next, wrong_length, beyond, odd});
  reading.read(*engine);
  EXPECT_EQ(reading.ops[0].status, PageStatus::ok);
  EXPECT_EQ(reading.ops[2].status, PageStatus::ok);
  for (size_t i : {1, 3, 4, 5}) {
    EXPECT_EQ(reading.ops[i].status, PageStatus::stale) << i;
    EXPECT_TRUE(is_painted(reading.ops[i].dest, reading.ops[i].length)) << i;
  }
  EXPECT_EQ(holder->server->stats().stale, 4u);
  EXPECT_TRUE(eventually([&] { return holder->pins() == 0; }));
}

TEST_P(TcpRead, DepartedHolderServesNothingToUninformedReaders) {
  open(1 << 20);
  const RecordRow row = holder->set(1, 30'000);
  EXPECT_EQ(one_read(*engine, row), PageStatus::ok);
  holder->serves = false;
  EXPECT_EQ(one_read(*engine, row), PageStatus::stale);
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_P(TcpRead, ReadersOfAChurningPoolSeeTheRightBytesOrStale) {
  open(4 << 20);
  // Each round rewrites half of the pool, so records become stale all the time.
  constexpr size_t kPages = 30;
  std::mutex mutex;
  std::vector<RecordRow> rows(kPages);
  std::vector<uint64_t> numbers(kPages);
  for (size_t i = 0; i < kPages; ++i) rows[i] = holder->set(numbers[i] = i, 60'000);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> allowed{0};  // the writer never replaces all pages between two reads
  std::thread writer([&] {
    uint64_t number = 1000;
    for (size_t i = 0; !stop; i = (i + 7) % kPages) {
      while (number - 1000 >= allowed && !stop) std::this_thread::yield();
      const Digest old = rows[i].digest;
      std::vector<RecordRow> withdrawn;
      holder->pool.remove({&old, 1}, withdrawn);
      const RecordRow row = holder->set(number, 60'000);
      std::lock_guard lock(mutex);
      rows[i] = row;
      numbers[i] = number++;
    }
  });
  size_t ok = 0;
  for (int round = 0; round < 150; ++round) {
    std::vector<RecordRow> known;
    std::vector<uint64_t> known_numbers;
    {
      std::lock_guard lock(mutex);
      known = rows;
      known_numbers = numbers;
    }
    allowed += kPages / 2;
    Reading reading(known);
    reading.read(*engine);
    for (size_t i = 0; i < kPages; ++i) {
      const ReadOp& op = reading.ops[i];
      if (op.status == PageStatus::ok) {
        ASSERT_TRUE(is_page(op.dest, op.length, known_numbers[i]));
        ++ok;
      } else {
        ASSERT_EQ(op.status, PageStatus::stale);
      }
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(ok, 0u);
  EXPECT_TRUE(eventually([&] { return holder->pins() == 0; }));
}

TEST_P(TcpRead, UnknownPeerOrIncarnationIsAnError) {
  open(1 << 20);
  const RecordRow row = holder->set(1, 100);
  EXPECT_EQ(one_read(*make_reader(watcher), row), PageStatus::error);
  Reading other_start({row}, kPeer, kHolderIncarnation + 1);
  other_start.read(*engine);
  EXPECT_EQ(other_start.ops[0].status, PageStatus::error);
}

TEST_P(TcpRead, AnImpossibleLengthIsAnErrorAndTheOthersArrive) {
  open(1 << 20);
  Reading reading(
      {holder->set(0, 100), holder->set(1, 100), holder->set(2, 100), holder->set(3, 100)});
  reading.ops[0].length = 0;
  reading.ops[2].length = kPageBytesMax + 1;
  reading.read(*engine);
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  EXPECT_EQ(reading.ops[1].status, PageStatus::ok);
  EXPECT_EQ(reading.ops[2].status, PageStatus::error);
  EXPECT_EQ(reading.ops[3].status, PageStatus::ok);
}

TEST_P(TcpRead, APassedDeadlineTouchesNothing) {
  open(1 << 20);
  Reading reading({holder->set(1, 1000)});
  reading.read(*engine, 0);
  EXPECT_EQ(reading.ops[0].status, PageStatus::deadline);
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
  EXPECT_TRUE(watcher.troubles().empty()) << "the peer was not even asked";
}

TEST_P(TcpRead, AFencedGateStopsAllWriting) {
  open(64 << 20);
  Reading reading({holder->set(1, 20 << 20), holder->set(2, 20 << 20)});
  reading.gate.fence();
  reading.read(*engine);
  EXPECT_EQ(reading.count(PageStatus::deadline), 2u);
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
  EXPECT_TRUE(watcher.troubles().empty()) << "the worker gave up, not the peer";
}

// The bytes on the socket order this write against the holder's send. The thread sanitizer cannot
// see that.
__attribute__((no_sanitize("thread"))) void turn_bit(std::byte* at) {
  *at = static_cast<std::byte>(static_cast<uint8_t>(*at) ^ 1u);
}

TEST_P(TcpRead, AByteChangedAnywhereInALargePageIsFound) {
  open(64 << 20);
  constexpr uint32_t kLargeBytes = (5 << 20) + 77;
  const RecordRow row = holder->set(1, kLargeBytes);
  for (size_t at : {size_t{0}, size_t{1023}, kGatePieceBytes, size_t{3'333'333},
                    size_t{kLargeBytes - 78}, size_t{kLargeBytes - 1}}) {
    std::byte* byte = holder->pool.base() + row.offset + sizeof(SlotHeader) + at;
    turn_bit(byte);
    EXPECT_EQ(one_read(*engine, row), PageStatus::stale) << at;
    turn_bit(byte);
    expect_read(*engine, {row}, 1);
  }
}

// Fences the gate once the first page has landed.
class FencingSink : public PageSink {
 public:
  explicit FencingSink(Gate& gate) : gate_(gate) {}
  void landed(const ReadBatch&, ReadOp& op) override {
    op.status = PageStatus::ok;
    gate_.fence();
  }
  bool sums() const override { return false; }

 private:
  Gate& gate_;
};

TEST_P(TcpRead, AGateFencedInMidReadLeavesTheRestUnwritten) {
  TcpEngineConfig config;
  config.channels_per_read_max = 1;
  open(64 << 20, config);
  const std::vector<RecordRow> rows = holder->set_many(0, 10, 2 << 20);
  Reading reading(rows);
  FencingSink sink(reading.gate);
  engine->read({&reading.batch, 1}, Deadline::after_ms(10'000), reading.gate.gate, sink);
  EXPECT_EQ(reading.count(PageStatus::ok), 1u);
  EXPECT_EQ(reading.count(PageStatus::deadline), 9u);
  EXPECT_TRUE(is_painted(reading.ops[2].dest, 8 * reading.ops[2].length));
  EXPECT_TRUE(eventually([&] { return holder->pins() == 0; }));
}

TEST_P(TcpRead, ARestartedPeerIsReadAgainOverAFreshConnection) {
  open(1 << 20);
  const RecordRow row = holder->set(1, 1000);
  EXPECT_EQ(one_read(*engine, row), PageStatus::ok);
  holder->restart();  // the idle channel is dead, the peer is not
  EXPECT_EQ(one_read(*engine, row), PageStatus::ok);
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_P(TcpRead, ADeadPeerIsReportedOnceAndCostsNoTime) {
  open(1 << 20);
  const RecordRow row = holder->set(1, 1000);
  holder.reset();
  Reading reading({row, row, row});
  const TimePoint start = Clock::now();
  reading.read(*engine, 60'000);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(reading.count(PageStatus::error), 3u);
  expect_trouble("cannot connect");
}

TEST_P(TcpRead, AWrongTokenIsRefusedCountedAndReported) {
  holder.emplace(1 << 20, port());
  PeerEndpoint endpoint = holder->endpoint();
  endpoint.token = std::string(32, 'w');
  engine = reader_of(endpoint);
  EXPECT_EQ(one_read(*engine, holder->set(1, 1000)), PageStatus::error);
  EXPECT_TRUE(eventually([&] { return holder->server->stats().bad_hellos == 1; }));
  expect_trouble("shake hands again [token unknown]");
  expect_trouble(GetParam() ? "TLS: " : "refused: ");
  endpoint.token = "short";
  EXPECT_THROW(engine->add_peer(kPeer, endpoint), std::invalid_argument);
}

TEST_P(TcpRead, AnotherIncarnationThanExpectedIsRefused) {
  holder.emplace(1 << 20, port(), kHolderIncarnation + 1);
  PeerEndpoint endpoint = holder->endpoint();
  endpoint.incarnation = kHolderIncarnation;  // from an old record
  engine = reader_of(endpoint);
  Reading reading({holder->set(1, 1000)});
  reading.read(*engine);
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  EXPECT_TRUE(eventually([&] { return holder->server->stats().bad_hellos == 1; }));
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
}

TEST_P(TcpRead, AFullServerRefusesFurtherChannelsAndServesTheOthers) {
  TcpServerConfig server_config = port();
  server_config.channels_max = 1;
  TcpEngineConfig config;
  config.channels_per_read_max = 3;
  open(32 << 20, config, server_config);
  const std::vector<RecordRow> rows = holder->set_many(0, 16, 1 << 20);
  // One channel may bring all pages before the others have said hello.
  EXPECT_TRUE(eventually([&] {
    expect_read(*engine, rows, 0);
    return holder->server->stats().refused >= 1;
  }));
  EXPECT_TRUE(watcher.troubles().empty()) << "one channel is enough";
}

TEST_P(TcpRead, AServerThatDropsAPeerCutsItsChannels) {
  open(1 << 20);
  const RecordRow row = holder->set(1, 1000);
  Reading first({row});
  first.read(*engine);
  EXPECT_EQ(holder->server->stats().channels, 1u);
  holder->server->drop_peer("reader", kReaderIncarnation + 1);
  holder->server->drop_peer("another", kReaderIncarnation);
  Reading second({row});
  second.read(*engine);
  EXPECT_EQ(holder->server->stats().accepted, 1u) << "those were others";
  holder->server->drop_peer("reader", kReaderIncarnation);
  EXPECT_TRUE(eventually([&] { return holder->server->stats().channels == 0; }));
}

TEST_P(TcpRead, AddingTheSamePeerAgainKeepsItsChannels) {
  holder.emplace(1 << 20, port());
  engine = make_reader(watcher);
  const RecordRow row = holder->set(1, 1000);
  for (int round = 0; round < 3; ++round) {
    engine->add_peer(kPeer, holder->endpoint());
    EXPECT_EQ(one_read(*engine, row), PageStatus::ok);
  }
  EXPECT_EQ(holder->server->stats().accepted, 1u);
}

TEST_P(TcpRead, TakenPortErrorNamesTheAddressAndTheKey) {
  holder.emplace(1 << 20, port());
  TcpServerConfig config = port();
  config.host = "127.0.0.1";
  config.port = holder->server->port();
  try {
    TcpServer second(
        config, holder->pool, [](auto&, Incarnation) { return kToken; }, TcpServer::Answers{});
    FAIL();
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("127.0.0.1:" + std::to_string(config.port)), std::string::npos) << text;
    EXPECT_NE(text.find("set data_port"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Ports, TcpRead, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "Sealed" : "Clear"; });

}  // namespace
}  // namespace peercached::testing
