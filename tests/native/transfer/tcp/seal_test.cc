// Attacks on a sealed connection, by someone between the two ends or at one of them.
#include "transfer/tcp/seal.h"

#include <poll.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include "transfer/scripted_peer.h"
#include "transfer/tcp/channel.h"
#include "transfer/tcp/follower.h"

namespace peercached::testing {
namespace {

TcpServerConfig sealed(TcpServerConfig config = {}) {
  config.sealed = true;
  return config;
}

// A man in the middle between reader and holder: hears both, and may change their bytes.
class Wiretap {
 public:
  explicit Wiretap(const Holder& holder)
      : holder_(holder),
        taps_([this](Wire& reader, int) { carry(reader, connect_to(holder_.server->port())); }) {}

  PeerEndpoint endpoint() const {
    PeerEndpoint endpoint = holder_.endpoint();
    endpoint.port = taps_.endpoint().port;
    return endpoint;
  }
  bool heard(std::string_view what) {
    std::lock_guard lock(mutex_);
    return std::search(heard_.begin(), heard_.end(), what.begin(), what.end()) != heard_.end();
  }
  // Flips a bit at this offset of the holder's bytes; 0: none.
  std::atomic<size_t> flip_at{0};
  // Withholds the holder's bytes from this offset on.
  std::atomic<size_t> stop_at{SIZE_MAX};
  std::atomic<size_t> said{0};  // the holder's bytes that the reader got

 private:
  void carry(const Wire& reader, const Wire& holder) {
    std::vector<char> bytes(1 << 16);
    pollfd waits[] = {{reader.fd(), POLLIN, 0}, {holder.fd(), POLLIN, 0}};
    while (::poll(waits, 2, -1) > 0) {
      for (int side : {0, 1}) {
        if (waits[side].revents == 0) continue;
        const ssize_t n = ::recv(waits[side].fd, bytes.data(), bytes.size(), 0);
        if (n <= 0) return;
        const auto count = static_cast<size_t>(n);
        {
          std::lock_guard lock(mutex_);
          heard_.insert(heard_.end(), bytes.data(), bytes.data() + count);
        }
        const size_t flip = flip_at;
        if (side == 1 && flip != 0 && flip >= said && flip < said + count) bytes[flip - said] ^= 1;
        const size_t passed = side == 1 ? std::min(count, stop_at - said) : count;
        const Wire& other = side == 0 ? holder : reader;
        if (!other.send(std::as_bytes(std::span(bytes).first(passed)))) return;
        if (side == 1) said += passed;
      }
    }
  }

  const Holder& holder_;
  std::mutex mutex_;
  std::vector<char> heard_;
  ScriptedHolder taps_;
};

bool kernel_has_tls() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_ulp");
  return std::string(std::istreambuf_iterator(file), {}).find("tls") != std::string::npos;
}

class Sealed : public TcpTest {
 protected:
  void TearDown() override { tcp::Seal::policy = {}; }
};

// tests/rdma runs this where the kernel has TLS.
TEST_F(Sealed, EachEndLeavesItsPagesToTheKernelOrNot) {
  for (const auto& [sends, receives] :
       {std::pair{true, true}, {true, false}, {false, true}, {false, false}}) {
    tcp::Seal::policy.kernel_sends = sends;
    tcp::Seal::policy.kernel_receives = receives;
    Holder holder(256 << 20, sealed());
    auto engine = reader_of(holder.endpoint());
    read_mixes(holder,
               [&](const auto& rows, uint64_t first) { expect_read(*engine, rows, first); });
    EXPECT_TRUE(watcher.troubles().empty()) << watcher.troubles()[0];
    EXPECT_EQ(holder.server->stats().kernel_sealed != 0, sends && kernel_has_tls());
    if (!kernel_has_tls()) return;  // all pairs are the same
  }
}

TEST_F(Sealed, HalfARecordWakesNobody) {
  Holder holder(8 << 20, sealed());
  Wiretap between(holder);
  const RecordRow row = holder.set(1, 200'000);
  tcp::Channel channel(tcp::Dial(as_reader()).to(between.endpoint()));
  ASSERT_TRUE(eventually([&] {
    channel.catch_up();
    return channel.state() == tcp::Channel::State::ready;
  }));
  between.stop_at = between.said + 20'000;
  std::vector<std::byte> request, page(300'000);
  tcp::append_read(request, 1, {{{row.offset, row.digest, row.generation, row.length, 0}}});
  ASSERT_EQ(channel.stream().send(request), static_cast<ssize_t>(request.size()));
  ASSERT_TRUE(eventually([&] { return between.said == between.stop_at; }));
  EXPECT_TRUE(eventually([&] {
    pollfd wait{channel.fd(), POLLIN, 0};
    return channel.stream().receive(page.data(), page.size()) < 0 && errno == EAGAIN &&
           !channel.stream().has_more() && ::poll(&wait, 1, 50) == 0;
  }));
}

TEST_F(Sealed, AConnectionWhoseKeyIsUsedUpIsReplaced) {
  tcp::Seal::policy.received_records_max = 20;
  Holder holder(8 << 20, sealed());
  auto engine = reader_of(holder.endpoint());
  const std::vector<RecordRow> rows = holder.set_many(1, 8, 200'000);
  for (int round = 0; round < 10; ++round) expect_read(*engine, rows, 1);
  EXPECT_GT(holder.server->stats().accepted, 4u);
  EXPECT_TRUE(watcher.troubles().empty());
}

TEST_F(Sealed, AFollowerReplacesAConnectionWhoseKeyIsUsedUpAndLosesNothing) {
  tcp::Seal::policy.received_records_max = 20;
  Feed feed{8};
  feed.set_view(1, {}, Clock::now());
  std::atomic<uint64_t> asked{0}, scans{0};
  const auto source = std::make_shared<ScriptedSource>();
  source->next = [&](Incarnation who, const FeedQuestion& question, bool, tcp::Followed& told) {
    ++asked;
    std::vector<RecordRow> changes;
    feed.asked(who, question);
    const auto part = feed.answer(who, question, Clock::now(), changes);
    if (!part) return ScriptedSource::Next::none;
    if (part->anew) ++scans;
    told = {*part, {}};
    return ScriptedSource::Next::part;
  };
  Holder holder(1 << 20, sealed(), kHolderIncarnation, source);
  RecordTable table(1000, [] {});
  tcp::LifeSigns signs;
  tcp::Follower follower(table, signs, watcher, as_reader(), std::chrono::milliseconds(10));
  follower.follow_at_most(1);
  follower.follow(kPeer, holder.endpoint());
  EXPECT_TRUE(eventually([&] { return asked >= 100; }));
  EXPECT_GT(holder.server->stats().accepted, 3u);
  EXPECT_EQ(scans, 1u);
}

TEST_F(Sealed, WiretapHearsNoPageBytesWhenSealed) {
  for (const bool is_sealed : {false, true}) {
    TcpServerConfig config;
    config.sealed = is_sealed;
    Holder holder(8 << 20, config);
    Wiretap between(holder);
    Reading reading(holder.set_many(1, 8, 200'000));
    reading.read(*reader_of(between.endpoint()));
    expect_pages(reading, 1);
    const std::string_view part(reinterpret_cast<const char*>(reading.memory.data()) + 5000, 64);
    EXPECT_EQ(between.heard(part), !is_sealed);
    EXPECT_FALSE(between.heard(kToken));
  }
}

TEST_F(Sealed, FlippedBitOnTheWireEndsTheConnection) {
  Holder holder(8 << 20, sealed());
  Wiretap between(holder);
  between.flip_at = 300'000;
  Reading reading(holder.set_many(1, 8, 200'000));
  reading.read(*reader_of(between.endpoint()), 10'000, Verify::header);
  EXPECT_GE(reading.count(PageStatus::error), 1u);
  for (size_t i = 0; i < reading.ops.size(); ++i) {
    const ReadOp& op = reading.ops[i];
    EXPECT_TRUE(op.status != PageStatus::ok || is_page(op.dest, op.length, 1 + i)) << i;
  }
  ASSERT_FALSE(watcher.troubles().empty());
  EXPECT_TRUE(says(watcher.troubles()[0], "TLS: ")) << watcher.troubles()[0];
}

TEST_F(Sealed, AReaderThatIsNotKnownIsCountedAndNamed) {
  Notices notices;
  TcpServerConfig config = sealed();
  config.notices = &notices;
  Holder holder(1 << 20, config);
  TcpEngineConfig stranger;
  stranger.node_id = "stranger";
  stranger.incarnation = kReaderIncarnation;
  auto engine = make_tcp_engine(stranger, watcher);
  engine->add_peer(kPeer, holder.endpoint());
  EXPECT_EQ(one_read(*engine, holder.set(1, 1000)), PageStatus::error);
  EXPECT_TRUE(eventually([&] { return holder.server->stats().unauthorised == 1; }));
  const std::vector<std::string> said = notices.take();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(says(said[0], "refused a connection to data_port from 127.0.0.1: TLS: ")) << said[0];
}

TEST_F(Sealed, MismatchedSealingFailsTheConnection) {
  Holder holder(1 << 20, sealed()), open(1 << 20);
  PeerEndpoint endpoint = open.endpoint();
  endpoint.sealed = true;
  Reading reading({open.set(1, 1000)});
  reading.read(*reader_of(endpoint), 60'000);
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  EXPECT_TRUE(says(watcher.troubles().at(0), "TLS: ")) << watcher.troubles()[0];
  // A connection that sends garbage instead of TLS.
  const Wire garbage = connect_to(holder.server->port());
  EXPECT_TRUE(garbage.send(std::vector<std::byte>(100, std::byte{'G'})));
  EXPECT_TRUE(garbage.ends());
  EXPECT_TRUE(eventually([&] { return holder.server->stats().bad_hellos == 1; }));
}

TEST_F(Sealed, SilentConnectionIsClosed) {
  TcpServerConfig config = sealed();
  config.hello_timeout_ms = 100;
  Holder holder(1 << 20, config);
  const Wire silent = connect_to(holder.server->port());
  EXPECT_TRUE(silent.ends());
  EXPECT_TRUE(eventually([&] { return holder.server->stats().late_hellos == 1; }));
}

TEST_F(Sealed, StallingPeerIsCutOff) {
  TcpServerConfig config = sealed();
  config.stall_timeout_ms = 200;
  Holder holder(64 << 20, config);
  const RecordRow row = holder.set(1, 32 << 20);
  tcp::Channel channel(tcp::Dial(as_reader()).to(holder.endpoint()));
  EXPECT_TRUE(eventually([&] {
    channel.catch_up();
    return channel.state() == tcp::Channel::State::ready;
  }));
  std::vector<std::byte> request;
  tcp::append_read(request, 1, {{{row.offset, row.digest, row.generation, row.length, 0}}});
  EXPECT_EQ(channel.stream().send(request), static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(eventually([&] { return holder.server->stats().stalls == 1; }));
  EXPECT_TRUE(eventually([&] { return holder.pins() == 0; }));
}

// A holder that greets correctly, and then changes its key for ever.
TEST_F(Sealed, PeerThatOnlyChangesItsKeyIsDropped) {
  tcp::Seal::policy.kernel_sends = false;  // its kernel could not
  const tcp::Seal::TokenOf token_of = [](auto&, Incarnation) { return kToken; };
  const auto change_for_ever = [&](Wire& wire, int) {
    const auto seal = tcp::Seal::of_holder(wire.fd(), token_of);
    const auto say = [&](const std::vector<std::byte>& frame) {
      const iovec piece{const_cast<std::byte*>(frame.data()), frame.size()};
      return seal->send({&piece, 1}) == static_cast<ssize_t>(frame.size());
    };
    if (!eventually([&] { return seal->shake(); })) return;
    std::vector<std::byte> frame;
    tcp::append_challenge(frame, {});
    if (!say(frame)) return;
    frame.clear();
    tcp::append_hello_ok(frame, kHolderIncarnation);
    if (!say(frame)) return;
    while (seal->change_key() || errno == EAGAIN) std::this_thread::yield();
  };
  RecordRow row;
  row.length = 1000;
  for (const bool receives : {false, true}) {
    tcp::Seal::policy.kernel_receives = receives;
    ScriptedHolder holder(change_for_ever);
    PeerEndpoint endpoint = holder.endpoint();
    endpoint.sealed = true;
    RecordingWatcher watching;
    auto engine = make_reader(watching);
    engine->add_peer(kPeer, endpoint);
    EXPECT_EQ(one_read(*engine, row, 60'000), PageStatus::error);
    const char* trouble =
        receives && kernel_has_tls() ? "an alert or a key update" : "only key updates and no data";
    EXPECT_TRUE(says(watching.troubles().at(0), trouble)) << watching.troubles()[0];
  }
}

}  // namespace
}  // namespace peercached::testing
