// Channels that fail to open, break or are forgotten, over soft-RoCE.
#include <algorithm>
#include <cstdlib>

#include "pool/slot_header.h"
#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

class RdmaChannels : public RdmaTest {};

TEST_F(RdmaChannels, RefusedChannelFailsReadsBeforeTheDeadline) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  reader.refuse = true;
  // A read that waited for its deadline would end as PageStatus::deadline.
  EXPECT_EQ(one_read(reader, holder.set(0, 5000), patient_ms(60'000)), PageStatus::error);
}

TEST_F(RdmaChannels, FailedExtraChannelCastsNoDoubtOnOpenOnes) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  ASSERT_EQ(one_read(reader, holder.set(0, 5000)), PageStatus::ok);
  reader.unreachable = true;
  Reading many(holder.set_many(100, 20, 1 << 20));  // wants two channels
  reader.read(many);
  expect_pages(many, 100);
  EXPECT_TRUE(eventually([&] { return reader.connects > 1; }));
  EXPECT_TRUE(reader.troubles().empty());
  EXPECT_EQ(one_read(reader, holder.set(200, 5000)), PageStatus::ok);
}

TEST_F(RdmaChannels, LeaseDoesNotHopeForAnUnstartedChannel) {
  RdmaReader reader({"rxe1"});
  NoConnector busy;
  std::atomic<uint32_t> next_number{1};
  rdma::PeerChannels channels(kPeer, kHolderIncarnation, reader.fabric.rails(), 1, busy,
                              next_number);
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto lease = channels.lease(0, false, true);
    EXPECT_EQ(lease.channel, nullptr);
    EXPECT_FALSE(lease.hope) << "attempt " << attempt;
  }
}

TEST_F(RdmaChannels, AnAnswerOfAnotherProcessConnectsNothing) {
  RdmaHolder holder(64 << 20, {"rxe0"}, kHolderIncarnation + 1);
  RdmaReader reader({"rxe1"});
  const RecordRow row = holder.set(0, 5000);
  PeerEndpoint earlier = holder.endpoint();
  earlier.incarnation = kHolderIncarnation;
  reader.knows(holder, earlier);
  Reading reading({row}, kPeer, kHolderIncarnation);
  reader.read(reading, 60'000);
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
  EXPECT_GT(reader.connects, 0u);
}

TEST_F(RdmaChannels, PagesInMemoryThatTheHolderRegisteredLaterAreReadOverANewChannel) {
  constexpr uint64_t kPart = 64 << 20;
  RdmaHolder holder(3 * kPart, {"rxe0"}, kHolderIncarnation, kPart);
  RdmaReader reader(holder, {"rxe1"});
  const std::vector<RecordRow> first = holder.set_many(0, 50, 1 << 20);
  Reading early(first);
  reader.read(early);
  expect_pages(early, 0);
  const unsigned connects = reader.connects;
  EXPECT_GT(connects, 0u);

  // No page can be there yet, so a record of one is wrong.
  RecordRow wrong = first[0];
  wrong.offset = 2 * kPart;
  EXPECT_EQ(one_read(reader, wrong), PageStatus::stale);

  holder.grow();
  const std::vector<RecordRow> second = holder.set_many(100, 60, 1 << 20);
  EXPECT_GT(second.back().offset, kPart);
  Reading late(second);
  reader.read(late);
  expect_pages(late, 100);
  EXPECT_GT(reader.connects, connects);
  EXPECT_EQ(one_read(reader, first[0]), PageStatus::ok);
  EXPECT_EQ(one_read(reader, wrong), PageStatus::stale);
}

TEST_F(RdmaChannels, ClosedChannelsAreReportedUntilTheHolderHears) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  const RecordRow row = holder.set(0, 5000);
  ASSERT_EQ(one_read(reader, row), PageStatus::ok);
  // The idle channel closes with its rail. The rail itself is usable again at once.
  reader.unreachable = true;
  reader.fabric.engine().leave_rail(*reader.fabric.rails()[0]);
  EXPECT_EQ(one_read(reader, row), PageStatus::error);
  EXPECT_EQ(reader.told().front(), 1u);
  EXPECT_EQ(holder.fabric.responder().channels(), 1u);
  reader.unreachable = false;
  EXPECT_TRUE(eventually([&] { return one_read(reader, row) == PageStatus::ok; }));
  const std::vector<uint32_t> told = reader.told();
  EXPECT_NE(std::find(told.begin(), told.end(), 1u), told.end());
  EXPECT_EQ(holder.fabric.responder().channels(), 1u);
}

TEST_F(RdmaChannels, LostGoodbyesDoNotLockAReaderOut) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader({"rxe1"});
  rdma::Channel end(*reader.fabric.rails()[0], 1);
  rdma::ChannelEnd offer = end.own_end();
  rdma::Responder& responder = holder.fabric.responder();
  for (uint32_t number = 1; number <= 100; ++number) {
    offer.channel = number;
    offer.rail = number;  // ignored: this holder has one rail
    responder.accept("reader", kReaderIncarnation, offer, {});
  }
  EXPECT_EQ(responder.channels(), 64u);
  // The newest channels are still open.
  const std::vector<uint32_t> closed{36, 37};
  offer.channel = 100;
  EXPECT_THROW(responder.accept("reader", kReaderIncarnation, offer, {}), std::invalid_argument);
  offer.channel = 101;
  responder.accept("reader", kReaderIncarnation, offer, closed);
  EXPECT_EQ(responder.channels(), 64u);
  responder.drop_reader("reader", kReaderIncarnation);
  EXPECT_EQ(responder.channels(), 0u);
  EXPECT_EQ(holder.fabric.rails()[0]->counters.responders, 0u);
  responder.accept("reader", kReaderIncarnation, offer, {});
  responder.open(false);
  EXPECT_EQ(responder.channels(), 0u);
  EXPECT_THROW(responder.accept("reader", kReaderIncarnation, offer, {}), std::runtime_error);
}

TEST_F(RdmaChannels, BrokenChannelIsFencedAtOnce) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader({"rxe1"});
  const std::vector<RecordRow> rows = holder.set_many(0, 2, 5000);
  Reading reading(rows);
  rdma::MemoryTable& regions = reader.fabric.regions();
  regions.add(reading.memory.data(), reading.memory.size());
  rdma::Channel channel(*reader.fabric.rails()[0], 1);
  channel.connect(
      holder.fabric.responder().accept("reader", kReaderIncarnation, channel.own_end(), {}));
  channel.break_off();
  const std::vector<rdma::Slice> slices{{0, 0, 5000}, {1, 0, 5000}};
  channel.post(slices, reading.ops, *regions.find(reading.memory.data()));
  EXPECT_TRUE(eventually([&] {
    channel.poll();
    return !channel.trouble().empty();
  }));
  const TimePoint start = Clock::now();
  channel.fence();
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(80));  // its timeout is 100 ms
  regions.remove(reading.memory.data());
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
}

// While it lives, a network device sends no larger packets.
class SmallMtu {
 public:
  explicit SmallMtu(std::string netdev) : netdev_(std::move(netdev)) { set(1500); }
  ~SmallMtu() { set(9000); }

 private:
  void set(int bytes) const {
    const std::string command = "ip link set " + netdev_ + " mtu " + std::to_string(bytes);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  const std::string netdev_;
};

TEST_F(RdmaChannels, ChannelPassingOnlySmallReadsIsNotProven) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader({"rxe1"});
  rdma::Channel channel(*reader.fabric.rails()[0], 1);
  channel.connect(
      holder.fabric.responder().accept("reader", kReaderIncarnation, channel.own_end(), {}));
  const SmallMtu mtu("rdma0");
  channel.ask();
  EXPECT_TRUE(eventually([&] {
    EXPECT_FALSE(channel.answered());
    return channel.no_proof().find("READs of 64 bytes pass") != std::string::npos;
  }));
}

TEST_F(RdmaChannels, HeaderIsReadAgainAfterThePayloadLanded) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader({"rxe1"});
  const RecordRow row = holder.set(0, 5000);
  Reading reading({row});
  rdma::MemoryTable& regions = reader.fabric.regions();
  regions.add(reading.memory.data(), reading.memory.size());
  {
    rdma::Channel channel(*reader.fabric.rails()[0], 1);
    channel.connect(
        holder.fabric.responder().accept("reader", kReaderIncarnation, channel.own_end(), {}));
    const std::vector<rdma::Slice> slices{{0, 0, 5000}};
    channel.post(slices, reading.ops, *regions.find(reading.memory.data()));
    EXPECT_TRUE(eventually([&] { return is_page(reading.memory.data(), 5000, 0); }));
    // Evicts the slot after the payload has arrived and before the channel is polled.
    invalidate_header(holder.pool.base() + row.offset);
    EXPECT_TRUE(eventually([&] { return channel.poll() == 1; }));
    EXPECT_TRUE(sealed(channel.before(0)));
    EXPECT_EQ(channel.after(0).state, kSlotInvalid);
    EXPECT_EQ(channel.after(0).generation, row.generation);
  }
  regions.remove(reading.memory.data());
}

}  // namespace
}  // namespace peercached::testing
