// The reader's behaviour when a holder hangs, lies, resets or goes away.
#include <sys/mman.h>

#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

class TcpHostileHolder : public TcpTest {};

constexpr uint32_t kLength = 60'000;  // several pages fit into one request

TEST_F(TcpHostileHolder, LateBytesAfterTheDeadlineAreNotWritten) {
  std::promise<void> painted;
  std::shared_future<void> go_on = painted.get_future().share();
  std::atomic<bool> cut{false};
  ScriptedHolder holder([&](Wire& wire, int) {
    Request request;
    if (!ScriptedHolder::greet(wire) || !ScriptedHolder::receive_request(wire, request)) return;
    const auto bytes = ScriptedHolder::answer(request, 0);
    // Stops in the middle of the second page, then sends the rest.
    const size_t half = bytes.size() / 2;
    wire.send(std::span(bytes).first(half));
    go_on.wait();
    wire.send(std::span(bytes).subspan(half));
    cut = wire.ends();
  });
  {
    auto engine = reader_of(holder.endpoint());
    Reading reading(
        {made_up_record(0, kLength), made_up_record(1, kLength), made_up_record(2, kLength)});
    const TimePoint start = Clock::now();
    reading.read(*engine, 100);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
    EXPECT_EQ(reading.ops[0].status, PageStatus::ok);
    EXPECT_EQ(reading.ops[1].status, PageStatus::deadline);
    EXPECT_EQ(reading.ops[2].status, PageStatus::deadline);
    EXPECT_TRUE(is_page(reading.ops[0].dest, kLength, 0));
    expect_trouble("silent for");

    std::fill(reading.memory.begin(), reading.memory.end(), kPaint);
    const SlotHeader header = reading.ops[1].header;
    painted.set_value();
    EXPECT_TRUE(eventually([&] { return cut.load(); }));
    EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
    EXPECT_EQ(std::memcmp(&reading.ops[1].header, &header, sizeof header), 0);
    EXPECT_EQ(engine->health().at(0).channels, 0u) << "never used again";
    EXPECT_EQ(engine->health().at(0).deadlines, 2u);
  }
}

// Drops a peer once the expected number of pages has landed.
class DroppingSink : public PageSink {
 public:
  DroppingSink(TransferEngine& engine, HolderIndex peer, size_t pages)
      : engine_(engine), peer_(peer), missing_(pages) {}
  void landed(const ReadBatch& batch, ReadOp& op) override {
    verify_.landed(batch, op);
    if (--missing_ == 0) engine_.drop_peer(peer_);
  }
  bool sums() const override { return true; }

 private:
  TransferEngine& engine_;
  const HolderIndex peer_;
  std::atomic<size_t> missing_;
  VerifyingSink verify_{Verify::checksum};
};

TEST_F(TcpHostileHolder, HungPeerDoesNotDelayPagesOfOthers) {
  ScriptedHolder hung([](Wire& wire, int) { wire.ends(); });  // never sends a hello
  Holder holder(32 << 20);
  for (unsigned movers : {0u, 2u}) {
    TcpEngineConfig config;
    config.movers = movers;
    config.connect_timeout_ms = 120'000;
    auto engine = make_reader(watcher, config);
    engine->add_peer(1, hung.endpoint());
    engine->add_peer(2, holder.endpoint());
    std::vector<RecordRow> hung_rows, rows;
    for (uint64_t i = 0; i < 20; ++i) {
      hung_rows.push_back(made_up_record(i, 500'000));
      rows.push_back(holder.set(1000 * movers + i, 500'000));
    }
    Reading lost(hung_rows, 1), found(rows, 2);
    std::vector<ReadBatch> batches = {lost.batch, found.batch};
    // The sink drops the hung peer once all the other's pages are there. If those pages waited for
    // the hung peer, the deadline would pass.
    DroppingSink sink(*engine, 1, rows.size());
    const Deadline deadline = Deadline::after_ms(60'000);
    engine->read(batches, deadline, lost.gate.gate, sink);
    EXPECT_FALSE(deadline.passed());
    EXPECT_EQ(lost.count(PageStatus::error), 20u);
    EXPECT_EQ(found.count(PageStatus::ok), 20u);
  }
}

TEST_F(TcpHostileHolder, LatePeerLeavesTimeToRetryStalePagesOfAnother) {
  ScriptedHolder late = answering_holder();
  Holder holder(1 << 20);
  auto engine = make_reader(watcher);
  engine->add_peer(1, late.endpoint());
  engine->add_peer(2, holder.endpoint());
  RecordRow gone = holder.set(1, 30'000);
  std::vector<RecordRow> withdrawn;
  holder.pool.remove({&gone.digest, 1}, withdrawn);
  Reading lost({made_up_record(0, 500'000)}, 1), stale({gone, holder.set(2, 30'000)}, 2);
  std::vector<ReadBatch> batches = {lost.batch, stale.batch};
  VerifyingSink sink(Verify::checksum);
  const Deadline deadline = Deadline::after_ms(4000);
  engine->read(batches, deadline, lost.gate.gate, sink);
  EXPECT_FALSE(deadline.passed());
  EXPECT_EQ(lost.ops[0].status, PageStatus::deadline);
  EXPECT_EQ(stale.ops[0].status, PageStatus::stale);
  EXPECT_EQ(stale.ops[1].status, PageStatus::ok);
  expect_trouble("1: silent for");
}

TEST_F(TcpHostileHolder, UnansweredConnectionEndsAtTheConnectTimeout) {
  ScriptedHolder hung([](Wire& wire, int) { wire.ends(); });
  TcpEngineConfig config;
  config.connect_timeout_ms = 50;
  auto engine = reader_of(hung.endpoint(), config);
  Reading reading({made_up_record(0, kLength)});
  const TimePoint start = Clock::now();
  reading.read(*engine, 60'000);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  expect_trouble("no answer to hello within 50 ms");
}

class TellingSink : public PageSink {
 public:
  explicit TellingSink(std::promise<void>& landed) : landed_(landed) {}
  void landed(const ReadBatch& batch, ReadOp& op) override {
    verify_.landed(batch, op);
    landed_.set_value();
  }
  bool sums() const override { return true; }

 private:
  std::promise<void>& landed_;
  VerifyingSink verify_{Verify::checksum};
};

TEST_F(TcpHostileHolder, ResetMidPayloadKeepsOnlyPagesAlreadyLanded) {
  std::promise<void> first_landed;
  ScriptedHolder holder([&](Wire& wire, int) {
    Request request;
    if (!ScriptedHolder::greet(wire) || !ScriptedHolder::receive_request(wire, request)) return;
    const auto bytes = ScriptedHolder::answer(request, 0);
    wire.send(std::span(bytes).first(bytes.size() / 2));
    // A reset may overtake bytes that the reader has not received, so wait for page 0.
    first_landed.get_future().wait();
    wire.reset();
  });
  auto engine = reader_of(holder.endpoint());
  Reading reading(
      {made_up_record(0, kLength), made_up_record(1, kLength), made_up_record(2, kLength)});
  TellingSink sink(first_landed);
  engine->read({&reading.batch, 1}, Deadline::after_ms(60'000), reading.gate.gate, sink);
  EXPECT_EQ(reading.ops[0].status, PageStatus::ok);
  EXPECT_TRUE(is_page(reading.ops[0].dest, kLength, 0));
  EXPECT_EQ(reading.ops[1].status, PageStatus::error);
  EXPECT_EQ(reading.ops[2].status, PageStatus::error);
  EXPECT_TRUE(is_painted(reading.ops[2].dest, kLength));
  EXPECT_EQ(watcher.troubles().size(), 1u);
}

// Greets and answers one request: `at_once` bytes, then single bytes until the reader hangs up.
ScriptedHolder dribbling_holder(size_t at_once) {
  return ScriptedHolder([=](Wire& wire, int) {
    Request request;
    if (!ScriptedHolder::greet(wire) || !ScriptedHolder::receive_request(wire, request)) return;
    const auto bytes = ScriptedHolder::answer(request, 0);
    wire.send(std::span(bytes).first(at_once));
    for (size_t at = at_once; at < bytes.size(); ++at) {
      if (!wire.send(std::span(bytes).subspan(at, 1))) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

TEST_F(TcpHostileHolder, DribblingHolderIsReportedAsTrouble) {
  ScriptedHolder holder = dribbling_holder(0);
  auto engine = reader_of(holder.endpoint());
  EXPECT_EQ(one_read(*engine, made_up_record(0, kLength), 1000), PageStatus::deadline);
  expect_trouble("sent only");
}

TEST_F(TcpHostileHolder, SlowHolderIsNotReportedAsTrouble) {
  constexpr uint32_t kLarge = 4 << 20;  // at 4 MB/s, it would arrive before the deadline
  ScriptedHolder holder = dribbling_holder(kLarge / 2);
  auto engine = reader_of(holder.endpoint());
  EXPECT_EQ(one_read(*engine, made_up_record(0, kLarge), 1000), PageStatus::deadline);
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(TcpHostileHolder, AResetBeforeAnyAnswerIsAnErrorAtOnce) {
  ScriptedHolder holder([](Wire& wire, int) {
    Request request;
    if (!ScriptedHolder::greet(wire)) return;
    ScriptedHolder::receive_request(wire, request);
    wire.reset();
  });
  auto engine = reader_of(holder.endpoint());
  Reading reading({made_up_record(0, kLength), made_up_record(1, kLength)});
  reading.read(*engine, 60'000);
  EXPECT_EQ(reading.count(PageStatus::error), 2u);
  EXPECT_EQ(watcher.troubles().size(), 1u);
}

TEST_F(TcpHostileHolder, AnIdleChannelThatDiedIsReplacedOnce) {
  std::atomic<int> connections{0};
  ScriptedHolder holder([&](Wire& wire, int connection) {
    ++connections;
    Request request;
    if (!ScriptedHolder::greet(wire) || !ScriptedHolder::receive_request(wire, request)) return;
    if (connection == 0) {
      wire.send(ScriptedHolder::answer(request, 0));
      // Receives the second request, then resets.
      ScriptedHolder::receive_request(wire, request);
      wire.reset();
    } else {
      wire.reset();  // later connections are reset too
    }
  });
  auto engine = reader_of(holder.endpoint());
  Reading first({made_up_record(0, kLength)}), second({made_up_record(0, kLength)});
  first.read(*engine);
  EXPECT_EQ(first.ops[0].status, PageStatus::ok);
  second.read(*engine);
  EXPECT_EQ(second.ops[0].status, PageStatus::error);
  EXPECT_EQ(connections, 2) << "one retry, no more";
  EXPECT_EQ(watcher.troubles().size(), 1u);
}

TEST_F(TcpHostileHolder, GarbageAnswerIsAnErrorForItsPeerOnly) {
  ScriptedHolder liar = answering_holder(std::vector(100'000, std::byte{0x5a}));
  Holder honest(1 << 20);
  auto engine = make_reader(watcher);
  engine->add_peer(1, liar.endpoint());
  engine->add_peer(2, honest.endpoint());
  Reading lied({made_up_record(0, kLength)}, 1), told({honest.set(1, kLength)}, 2);
  std::vector<ReadBatch> batches = {lied.batch, told.batch};
  VerifyingSink sink(Verify::checksum);
  engine->read(batches, Deadline::after_ms(10'000), lied.gate.gate, sink);
  EXPECT_EQ(lied.ops[0].status, PageStatus::error);
  EXPECT_TRUE(is_painted(lied.memory.data(), lied.memory.size()));
  EXPECT_EQ(told.ops[0].status, PageStatus::ok);
  expect_trouble("1: sent a bad answer: ");
}

TEST_F(TcpHostileHolder, GarbageDuringTheHandshakeIsAnError) {
  for (const bool challenges : {false, true}) {
    ScriptedHolder liar([=](Wire& wire, int) {
      std::vector<std::byte> challenge;
      tcp::append_challenge(challenge, {});
      if (challenges && (!wire.send(challenge) || wire.receive_frame().empty())) return;
      wire.send(std::vector<std::byte>(1000, std::byte{0x5a}));
      wire.ends();
    });
    auto engine = reader_of(liar.endpoint());
    EXPECT_EQ(one_read(*engine, made_up_record(0, kLength)), PageStatus::error);
    ASSERT_EQ(watcher.troubles().size(), challenges + 1u);
    EXPECT_NE(watcher.troubles().back().find("bad frame"), std::string::npos);
  }
}

TEST_F(TcpHostileHolder, PageOfAnotherGenerationOrPayloadIsStale) {
  ScriptedHolder holder([](Wire& wire, int) {
    Request request;
    if (!ScriptedHolder::greet(wire)) return;
    while (ScriptedHolder::receive_request(wire, request)) {
      auto pages = ScriptedHolder::answer(request, 0);
      // First the sealed header of another generation, then a payload unlike its header.
      for (auto& page : request.pages) ++page.generation;
      if (request.pages.size() == 1) pages = ScriptedHolder::answer(request, 0);
      if (request.pages.size() == 2) pages.back() ^= std::byte{1};
      if (!wire.send(pages)) return;
    }
  });
  auto engine = reader_of(holder.endpoint());
  Reading other_use({made_up_record(0, kLength)});
  other_use.read(*engine, 10'000, Verify::header);
  EXPECT_EQ(other_use.ops[0].status, PageStatus::stale);
  Reading torn({made_up_record(0, kLength), made_up_record(1, kLength)});
  torn.read(*engine);
  EXPECT_EQ(torn.ops[0].status, PageStatus::ok);
  EXPECT_EQ(torn.ops[1].status, PageStatus::stale);
}

TEST_F(TcpHostileHolder, DroppingAPeerEndsItsReadsWithError) {
  std::promise<void> asked;
  ScriptedHolder holder([&](Wire& wire, int) {
    Request request;
    if (!ScriptedHolder::greet(wire) || !ScriptedHolder::receive_request(wire, request)) return;
    asked.set_value();
    wire.ends();
  });
  for (const bool replaced : {false, true}) {
    asked = {};
    auto engine = reader_of(holder.endpoint());
    Reading reading({made_up_record(0, kLength)});
    std::thread dropper([&] {
      asked.get_future().wait();
      if (replaced) {
        PeerEndpoint next = holder.endpoint();
        ++next.incarnation;
        engine->add_peer(kPeer, next);
      } else {
        engine->drop_peer(kPeer);
      }
    });
    reading.read(*engine, 60'000);
    dropper.join();
    EXPECT_EQ(reading.ops[0].status, PageStatus::error);
    EXPECT_TRUE(watcher.troubles().empty()) << "no trouble: it was asked for";
  }
}

TEST_F(TcpHostileHolder, WorkerThatTruncatesItsMemoryLosesOnlyItsRead) {
  for (const bool sealed : {false, true}) {
    TcpServerConfig config;
    config.sealed = sealed;
    Holder holder(16 << 20, config);
    auto engine = reader_of(holder.endpoint());
    const RecordRow row = holder.set(1, 4 << 20);
    const int fd = memfd_create("region", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(fd, 4 << 20), 0);
    void* region = mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ASSERT_NE(region, MAP_FAILED);
    ASSERT_EQ(ftruncate(fd, 1 << 20), 0);
    Reading reading({row});
    reading.ops[0].dest = static_cast<std::byte*>(region);
    reading.read(*engine);
    EXPECT_EQ(reading.ops[0].status, PageStatus::region_lost);
    EXPECT_TRUE(watcher.troubles().empty());
    EXPECT_EQ(one_read(*engine, row), PageStatus::ok);
    munmap(region, 4 << 20);
    close(fd);
  }
}

}  // namespace
}  // namespace peercached::testing
