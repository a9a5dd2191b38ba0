// Clients that only connect to the data port must not keep readers out.
#include "transfer/scripted_peer.h"

namespace peercached::testing {
namespace {

class TcpCrowd : public TcpTest {
 protected:
  void expect_said(const std::string& part) {
    const auto said = notices.take();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find(part), std::string::npos) << said[0];
  }

  Notices notices;
};

TEST_F(TcpCrowd, ConnectionFloodIsRefusedAndReadersGoOn) {
  TcpServerConfig config;
  config.greeting_per_host_max = 4;
  config.notices = &notices;
  Holder holder(4 << 20, config);
  auto engine = reader_of(holder.endpoint());
  expect_served(holder, *engine, 1);
  std::vector<Wire> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(connect_to(holder.server->port()));
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 5; }));
  for (int i = 0; i < 100; ++i) {
    Wire flood = connect_to(holder.server->port());
    EXPECT_TRUE(flood.ends());
  }
  EXPECT_EQ(holder.server->stats().crowded, 100u);
  EXPECT_EQ(holder.server->stats().bad_hellos, 0u);
  expect_said("from 127.0.0.1: too many connections without a hello (4 from that address");
  expect_served(holder, *engine, 2);
  silent.clear();
  EXPECT_TRUE(eventually([&] { return holder.server->stats().channels == 1; }));
  Wire again = connect_and_greet(holder);
}

TEST_F(TcpCrowd, OnePeerHasItsBoundOfChannels) {
  TcpServerConfig config;
  config.channels_per_peer_max = 2;
  config.notices = &notices;
  Holder holder(1 << 20, config);
  Wire first = connect_and_greet(holder), second = connect_and_greet(holder);
  Wire third = connect_to(holder.server->port());
  third.send(hello_frame(third));
  const std::vector<std::byte> refusal = third.receive_frame();
  tcp::HelloReply reply;
  ASSERT_EQ(tcp::parse_hello_reply(tcp::FrameKind::refused, body_of(refusal), reply), nullptr);
  EXPECT_EQ(reply.reason, static_cast<uint16_t>(tcp::Refusal::full));
  EXPECT_EQ(holder.server->stats().crowded, 1u);
  expect_said("node 'reader' has 2 channels");
}

TEST_F(TcpCrowd, ReaderWithAWrongTokenIsNamed) {
  TcpServerConfig config;
  config.notices = &notices;
  Holder holder(1 << 20, config);
  for (int i = 0; i < 3; ++i) {
    Wire wire = connect_to(holder.server->port());
    wire.send(hello_frame(wire, std::string(32, 'x')));
    EXPECT_TRUE(wire.ends());
  }
  EXPECT_EQ(holder.server->stats().unauthorised, 3u);
  expect_said("does not know the token of a handshake with node 'reader'");
}

}  // namespace
}  // namespace peercached::testing
