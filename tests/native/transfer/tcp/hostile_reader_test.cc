// The holder's behaviour when a reader lies, dribbles, floods or does not receive its bytes.
#include <algorithm>
#include <random>

#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

class TcpHostileReader : public TcpTest {
 protected:
};

std::vector<std::byte> read_frame(std::span<const RecordRow> rows) {
  std::vector<PageWanted> wanted;
  for (const RecordRow& row : rows) {
    wanted.push_back({row.offset, row.digest, row.generation, row.length, 0});
  }
  std::vector<std::byte> frame;
  tcp::append_read(frame, 1, wanted);
  return frame;
}

TEST_F(TcpHostileReader, BadHellosAreRefusedAndCountedAndOthersGoOn) {
  Holder holder(4 << 20);
  auto engine = reader_of(holder.endpoint());
  expect_served(holder, *engine, 1);

  using Say = std::function<std::vector<std::byte>(const Wire&)>;
  std::vector<Say> bad;
  bad.push_back([](const Wire&) { return std::vector<std::byte>(500, std::byte{0x33}); });
  bad.push_back([](const Wire& wire) { return hello_frame(wire, std::string(32, 'x')); });
  for (auto spoil :
       {+[](tcp::Hello& h) { h.node_id = "stranger"; }, +[](tcp::Hello& h) { ++h.incarnation; },
        +[](tcp::Hello& h) { h.incarnation = 0; }, +[](tcp::Hello& h) { ++h.expected; }}) {
    tcp::Hello hello{"reader", kReaderIncarnation, kHolderIncarnation, {}};
    spoil(hello);
    bad.push_back([=](const Wire& wire) { return hello_frame(wire, kToken, hello); });
  }
  const RecordRow row = made_up_record(1, 10);
  bad.push_back([&](const Wire&) { return read_frame({&row, 1}); });  // without a hello
  bad.push_back([](const Wire& wire) {
    std::vector<std::byte> huge = hello_frame(wire);
    const uint32_t body_bytes = 0xffffffff;
    std::memcpy(huge.data() + offsetof(tcp::FrameHeader, body_bytes), &body_bytes, 4);
    return huge;
  });
  // A replay of a valid hello overheard on another connection.
  Wire overheard = connect_to(holder.server->port());
  std::vector<std::byte> once = hello_frame(overheard);
  EXPECT_TRUE(overheard.send(once));
  bad.push_back([&](const Wire&) { return once; });

  for (size_t i = 0; i < bad.size(); ++i) {
    Wire wire = connect_to(holder.server->port());
    wire.send(bad[i](wire));
    EXPECT_TRUE(wire.ends()) << "case " << i;
    EXPECT_TRUE(eventually([&] { return holder.server->stats().bad_hellos == i + 1; })) << i;
  }
  expect_served(holder, *engine, 2);
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 2; }));
}

TEST_F(TcpHostileReader, ConnectionWithoutTimelyHelloIsClosed) {
  TcpServerConfig config;
  config.hello_timeout_ms = 30;
  Holder holder(1 << 20, config);
  Wire silent = connect_to(holder.server->port());
  Wire dribbling = connect_to(holder.server->port());
  const std::byte some[5] = {};
  dribbling.send(some);
  EXPECT_TRUE(silent.ends());
  EXPECT_TRUE(dribbling.ends());
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 0; }));
  EXPECT_EQ(holder.server->stats().bad_hellos, 2u);
}

TEST_F(TcpHostileReader, BadRequestsCloseTheirChannelAndAreCounted) {
  Holder holder(4 << 20);
  auto engine = reader_of(holder.endpoint());
  expect_served(holder, *engine, 1);

  const RecordRow row = holder.set(2, 1000);
  const std::vector<std::byte> good = read_frame({&row, 1});
  const auto with = [&](size_t at, uint32_t value) {
    std::vector<std::byte> frame = good;
    std::memcpy(frame.data() + at, &value, sizeof value);
    return frame;
  };
  const auto hold_with = [&](size_t at, uint32_t value) {
    std::vector<std::byte> frame;
    tcp::append_hold(frame, 1, 1000, std::vector<Digest>{row.digest, row.digest});
    std::memcpy(frame.data() + at, &value, sizeof value);
    return frame;
  };
  const auto lookup_with = [&](size_t at, uint32_t value) {
    std::vector<std::byte> frame;
    tcp::append_lookup(frame, 1, 1, std::vector<Digest>{row.digest, row.digest});
    std::memcpy(frame.data() + at, &value, sizeof value);
    return frame;
  };
  constexpr size_t kBody = sizeof(tcp::FrameHeader);
  constexpr size_t kPage = kBody + sizeof(tcp::ReadHead);
  std::vector<std::byte> another_hello;
  tcp::append_hello(another_hello, {"reader", kReaderIncarnation, kHolderIncarnation, {}});
  const std::vector<std::vector<std::byte>> bad = {
      std::vector<std::byte>(100, std::byte{0x77}),
      with(offsetof(tcp::FrameHeader, body_bytes), 0xfffffff0),
      with(offsetof(tcp::FrameHeader, body_bytes), 3),
      with(offsetof(tcp::FrameHeader, kind), 77),
      with(kBody + offsetof(tcp::ReadHead, count), 0xffffffff),
      with(kBody + offsetof(tcp::ReadHead, count), 2),
      with(kBody + offsetof(tcp::ReadHead, count), 0),
      with(kPage + offsetof(PageWanted, length), 0),
      with(kPage + offsetof(PageWanted, length), 0xffffffff),
      another_hello,
      hold_with(kBody + offsetof(tcp::HoldHead, count), 0),
      hold_with(kBody + offsetof(tcp::HoldHead, count), 3),
      hold_with(kBody + offsetof(tcp::HoldHead, count), 0xffffffff),
      hold_with(offsetof(tcp::FrameHeader, body_bytes), 5),
      hold_with(offsetof(tcp::FrameHeader, body_bytes), tcp::kRequestBodyBytesMax + 1),
      hold_with(offsetof(tcp::FrameHeader, kind), static_cast<uint32_t>(tcp::FrameKind::held)),
      lookup_with(kBody + offsetof(tcp::LookupHead, count), 0),
      lookup_with(kBody + offsetof(tcp::LookupHead, count), 3),
      lookup_with(kBody + offsetof(tcp::LookupHead, count), 0xffffffff),
      lookup_with(kBody + offsetof(tcp::LookupHead, reserved), 1),
      lookup_with(offsetof(tcp::FrameHeader, kind), static_cast<uint32_t>(tcp::FrameKind::located)),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    Wire wire = connect_and_greet(holder);
    wire.send(bad[i]);
    EXPECT_TRUE(wire.ends()) << "case " << i;
    EXPECT_TRUE(eventually([&] { return holder.server->stats().bad_frames == i + 1; })) << i;
  }
  expect_served(holder, *engine, 3);
  EXPECT_TRUE(eventually([&] { return holder.pins() == 0; }));
}

TEST_F(TcpHostileReader, RandomBytesNeverGetAnythingOutOfTheHolder) {
  Holder holder(4 << 20);
  const RecordRow row = holder.set(1, 1000);
  const std::vector<std::byte> good = read_frame({&row, 1});
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    Wire wire = connect_and_greet(holder);
    std::vector<std::byte> frame = good;
    for (unsigned flips = 1 + random() % 6; flips != 0; --flips) {
      frame[random() % frame.size()] = static_cast<std::byte>(random());
    }
    frame.resize(random() % (frame.size() + 1));
    wire.send(frame);
    wire.reset();
  }
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 0; }));
  EXPECT_TRUE(eventually([&] { return holder.pins() == 0; }));
  auto engine = reader_of(holder.endpoint());
  expect_served(holder, *engine, 2);
}

TEST_F(TcpHostileReader, StallingReaderIsCutOffAndUnpinned) {
  TcpServerConfig config;
  config.stall_timeout_ms = 50;
  Holder holder(128 << 20, config);
  Wire wire = connect_and_greet(holder);
  const RecordRow row = holder.set(1, 96 << 20);  // larger than any socket buffer
  wire.send(read_frame({&row, 1}));
  EXPECT_TRUE(eventually([&] { return holder.pins() == 1; }));
  EXPECT_TRUE(eventually([&] { return holder.pins() == 0; }));
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 0; }));
  EXPECT_EQ(holder.server->stats().stalls, 1u);
  EXPECT_EQ(holder.server->stats().pages, 0u);
}

TEST_F(TcpHostileReader, ReaderLeavingMidAnswerLeavesNoPins) {
  Holder holder(128 << 20);
  const RecordRow row = holder.set(1, 96 << 20);
  {
    Wire wire = connect_and_greet(holder);
    wire.send(read_frame({&row, 1}));
    EXPECT_TRUE(eventually([&] { return holder.pins() == 1; }));
    wire.reset();
  }
  EXPECT_TRUE(eventually([&] { return holder.pins() == 0; }));
  EXPECT_EQ(holder.server->stats().stalls, 0u);
}

TEST_F(TcpHostileReader, AnIdleChannelEndsAndItsReaderConnectsAgain) {
  TcpServerConfig config;
  config.idle_timeout_ms = 200;  // time for a busy machine between connect and request
  Holder holder(4 << 20, config);
  auto engine = reader_of(holder.endpoint());
  expect_served(holder, *engine, 1);
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 0; }));
  expect_served(holder, *engine, 2);
  EXPECT_EQ(holder.server->stats().accepted, 2u);
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(TcpHostileReader, TheServerStopsWhileReadersAreInMidAnswer) {
  Holder holder(128 << 20);
  Wire stuck = connect_and_greet(holder), idle = connect_and_greet(holder);
  Wire greeting = connect_to(holder.server->port());
  const RecordRow row = holder.set(1, 96 << 20);
  stuck.send(read_frame({&row, 1}));
  EXPECT_TRUE(eventually([&] { return holder.pins() == 1; }));
  const TimePoint start = Clock::now();
  holder.server.reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4)) << "sooner than any timeout";
  EXPECT_EQ(holder.pins(), 0u);
  EXPECT_TRUE(idle.ends());
  EXPECT_TRUE(greeting.ends());
}

TEST_F(TcpHostileReader, ConnectionsBeyondTheBoundAreRefusedAndCounted) {
  TcpServerConfig config;
  config.channels_max = 3;
  Holder holder(1 << 20, config);
  std::vector<Wire> wires;
  for (int i = 0; i < 3; ++i) wires.push_back(connect_and_greet(holder));
  Wire beyond = connect_to(holder.server->port());
  beyond.send(hello_frame(beyond));
  const std::vector<std::byte> refusal = beyond.receive_frame();
  tcp::HelloReply reply;
  ASSERT_EQ(tcp::parse_hello_reply(tcp::FrameKind::refused, body_of(refusal), reply), nullptr);
  EXPECT_EQ(reply.reason, static_cast<uint16_t>(tcp::Refusal::full));
  EXPECT_EQ(holder.server->stats().refused, 1u);
  // A slot that becomes free is used again.
  wires.pop_back();
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 2; }));
  EXPECT_TRUE(eventually([&] {
    Wire wire = connect_to(holder.server->port());
    wire.send(hello_frame(wire));
    const std::vector<std::byte> frame = wire.receive_frame();
    tcp::FrameHeader header;
    return tcp::parse_header(frame, {tcp::FrameKind::hello_ok}, 100, header) == nullptr;
  }));
}

}  // namespace
}  // namespace peercached::testing
