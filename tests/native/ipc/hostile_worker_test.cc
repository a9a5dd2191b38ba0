// A broken or malicious worker gets a clear error, and no other worker notices.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "ipc/socket_path.h"
#include "ipc_fixture.h"

namespace peercached {
namespace {

using ipc::ErrorCode;
using ipc::Op;

// Closing this TCP socket takes 600 s, because its peer does not read its bytes.
class LingeringSocket {
 public:
  LingeringSocket() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address);
    auto* where = reinterpret_cast<sockaddr*>(&address);
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener_.get(), where, bytes), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    ::getsockname(listener_.get(), where, &bytes);
    UniqueFd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(sender.get(), where, bytes), 0);
    const std::string unread(1 << 20, 'x');
    while (::send(sender.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    }
    const linger slow = {1, 600};
    ::setsockopt(sender.get(), SOL_SOCKET, SO_LINGER, &slow, sizeof(slow));
    fd = std::move(sender);
  }
  UniqueFd fd;

 private:
  UniqueFd listener_;
};

class HostileWorker : public IpcWorker {
 protected:
  // Sends it and gives up the own copy, so that the daemon has the last one.
  static void pass(RawWorker& sender, const std::string& bytes, LingeringSocket& passed) {
    sender.send_bytes(bytes, {passed.fd.get()});
    passed.fd.reset();
  }

  void expect_quick_stop() {
    const auto begun = std::chrono::steady_clock::now();
    server.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
  }

  void expect_refused_and_closed(const std::optional<Reply>& reply, const std::string& mention) {
    expect_error(reply, ErrorCode::bad_frame, mention);
    EXPECT_TRUE(worker->closed_by_daemon());
    EXPECT_EQ(server->stats().bad_frames, 1u);
    expect_bystander_served();
  }
};

TEST_F(HostileWorker, ATruncatedMemfdCostsOnlyItsOwnRegion) {
  // Without MFD_ALLOW_SEALING, the daemon cannot stop the worker from shrinking the file.
  Memory loose(kBytes, 0);
  const uint32_t loose_region = worker->share(loose.fd, kBytes);
  ASSERT_NE(loose_region, 0u);
  EXPECT_EQ(worker->pages(Op::set, {{"k", loose_region, 8192, 4096}}),
            status_bytes({PageStatus::ok}));
  ASSERT_EQ(::ftruncate(loose.fd.get(), 4096), 0);
  EXPECT_EQ(worker->pages(Op::get, {{"k", loose_region, 8192, 4096}}),
            status_bytes({PageStatus::region_lost}));
  EXPECT_EQ(worker->pages(Op::set, {{"n", loose_region, 0, 16}, {"m", region, 0, 16}}),
            status_bytes({PageStatus::region_lost, PageStatus::ok}))
      << "dropped as a whole, and only that one";
  EXPECT_EQ(server->stats().regions_lost, 1u);
  EXPECT_EQ(worker->ask(Op::unregister_region, "", loose_region)->error(), ErrorCode::none);
  expect_bystander_served();
}

TEST_F(HostileWorker, ASealableMemfdCannotBeShrunkAfterwards) {
  EXPECT_NE(::ftruncate(memory.fd.get(), 4096), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST_F(HostileWorker, GarbageIsAnsweredAndTheConnectionClosed) {
  worker->send_bytes(std::string(24, '\xee'));
  expect_refused_and_closed(worker->receive(), "bytes");
}

TEST_F(HostileWorker, ACountBeyondTheLimitIsRefused) {
  expect_refused_and_closed(worker->ask(Op::exists, "", ipc::kPagesMax + 1), "a count of 65537");
}

TEST_F(HostileWorker, ABodyBeyondTheLimitIsRefusedBeforeItIsSent) {
  worker->send_bytes(worker->head(Op::set, ipc::kBodyBytesMax + 1));
  expect_refused_and_closed(worker->receive(), std::to_string(ipc::kBodyBytesMax + 1));
}

TEST_F(HostileWorker, ColumnsThatDoNotFitTheBodyAreRefused) {
  expect_refused_and_closed(worker->ask(Op::get, std::string(100, 'x'), 6), "columns of 6 pages");
}

TEST_F(HostileWorker, KeyLengthsThatDoNotAddUpAreRefused) {
  std::string body;
  append(body, 0xffffffffu);
  append(body, 0xffffffffu);
  expect_refused_and_closed(worker->ask(Op::exists, body + "k", 2), "add up to 8589934590");
}

TEST_F(HostileWorker, AParentKeyBeyondTheBodyIsRefused) {
  std::string body;
  append(body, 1u);
  append(body, 4000u);
  expect_refused_and_closed(worker->ask(Op::exists, body + "k", 1, ipc::kFlagParent),
                            "parent key of 4000");
}

TEST_F(HostileWorker, UnknownFlagsAreRefused) {
  expect_refused_and_closed(worker->ask(Op::get, "", 0, 0x4000), "flags 16384");
}

TEST_F(HostileWorker, ASecondRequestBeforeTheReplyIsRefused) {
  const auto ping = worker->head(Op::ping, 0);
  worker->send_bytes(ping + ping);
  expect_refused_and_closed(worker->receive(), "24 bytes follow");
}

TEST_F(HostileWorker, MoreFilesThanAskedForAreRefusedAndClosed) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_files();
  const int fd = memory.fd.get();
  const auto ping = worker->head(Op::ping, 0);
  worker->send_bytes(ping, std::vector<int>(9, fd));
  expect_refused_and_closed(worker->receive(), "file");
  EXPECT_TRUE(eventually([&] { return open_files() < before; }))
      << "the connection's own files went, and none stayed behind";
}

TEST_F(HostileWorker, FileWithAnOpThatTakesNoFileIsRefused) {
  expect_refused_and_closed(worker->ask(Op::ping, "", 0, 0, {memory.fd.get()}), "no file");
}

TEST_F(HostileWorker, FilesOfRefusedWorkersHoldUpNobody) {
  server.reset();
  config.connections_max = 1;
  start();
  std::vector<LingeringSocket> passed(20);
  worker = attached();
  for (LingeringSocket& one : passed) {
    RawWorker refused(config.socket_path);
    pass(refused, worker->head(Op::ping, 0), one);
  }
  worker.reset();
  std::optional<Reply> reply;
  EXPECT_TRUE(eventually([&] {
    worker = std::make_unique<RawWorker>(config.socket_path);
    reply = worker->hello();
    return reply && reply->error() == ErrorCode::none;
  }));
  EXPECT_GT(server->stats().refused, 0u);
  expect_quick_stop();
}

TEST_F(HostileWorker, FilesOfWorkersHoldUpNeitherTheNextNorAStop) {
  std::vector<LingeringSocket> passed(4);
  RawWorker misuse(config.socket_path);
  pass(misuse, worker->head(Op::ping, 0), passed[0]);  // instead of HELLO
  EXPECT_TRUE(misuse.receive());
  pass(*worker, worker->head(Op::ping, 0), passed[1]);
  EXPECT_TRUE(worker->receive());
  // A whole frame, and another file behind it that nobody reads.
  RawWorker gone(config.socket_path);
  pass(gone, std::string(24, '\xee'), passed[2]);
  pass(gone, "more", passed[3]);
  gone.socket.reset();
  expect_bystander_served();
  EXPECT_TRUE(eventually([&] { return server->stats().connections == 1; }));
  EXPECT_TRUE(attached()->connected);
  expect_quick_stop();
}

TEST_F(HostileWorker, ConnectionsNotYetAcceptedHoldUpNoStop) {
  LingeringSocket passed;
  config.socket_path = dir / "other.sock";
  auto path = std::make_unique<ipc::SocketPath>(config.socket_path, 0600);
  path->listen();
  RawWorker early(config.socket_path);
  pass(early, "x", passed);
  const auto begun = std::chrono::steady_clock::now();
  path.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

TEST_F(HostileWorker, AReplyThatNobodyReadsHoldsUpNoStop) {
  const uint32_t count = ipc::kPagesMax;
  const std::string body = pack_keys(std::vector<std::string>(count, "k"));
  worker->send_bytes(
      worker->head(Op::exists, static_cast<uint32_t>(body.size()), count, ipc::kFlagLengths) +
      body);
  EXPECT_TRUE(eventually([&] { return server->stats().exists == 1; }));
  expect_quick_stop();
}

TEST_F(HostileWorker, AnUnknownOpIsAnErrorAndTheConnectionGoesOn) {
  expect_error(worker->ask(static_cast<Op>(999), "whatever"), ErrorCode::unknown_op);
  EXPECT_EQ(worker->ask(Op::ping)->error(), ErrorCode::none);
  expect_bystander_served();
}

TEST_F(HostileWorker, AnyRequestBeforeHelloIsRefused) {
  for (const Op op : {Op::get, Op::stats, Op::clear, Op::ping}) {
    RawWorker stranger(config.socket_path);
    expect_error(stranger.ask(op), ErrorCode::not_attached);
    EXPECT_TRUE(stranger.closed_by_daemon());
  }
  expect_bystander_served();
}

TEST_F(HostileWorker, ARegionOfAnotherWorkerDoesNotExist) {
  const std::string before(bystander_memory.at, kBytes);
  EXPECT_EQ(worker->pages(Op::set, {{"k", bystander_region, 0, 1}, {"l", region, 0, 1}}),
            status_bytes({PageStatus::bad_region, PageStatus::ok}));
  EXPECT_EQ(worker->pages(Op::get, {{"l", bystander_region, 0, 1}}),
            status_bytes({PageStatus::bad_region}));
  EXPECT_EQ(std::string(bystander_memory.at, kBytes), before);
  EXPECT_EQ(worker->ask(Op::unregister_region, "", bystander_region)->error(),
            ErrorCode::bad_value);
  expect_bystander_served();
}

TEST_F(HostileWorker, RangesOutsideTheRegionAreRefusedPageByPage) {
  EXPECT_EQ(worker->pages(Op::set, {{"past the end", region, kBytes - 1, 2},
                                    {"beginning behind it", region, kBytes + 1, 1},
                                    {"overflowing 64 bits", region, UINT64_MAX, 2},
                                    {"overflowing to zero", region, UINT64_MAX - 9, 10},
                                    {"of length zero", region, 0, 0},
                                    {"zero at the very end", region, kBytes, 0},
                                    {"the longest", region, 0, UINT32_MAX},
                                    {"the last byte", region, kBytes - 1, 1}}),
            status_bytes({PageStatus::bad_range, PageStatus::bad_range, PageStatus::bad_range,
                          PageStatus::bad_range, PageStatus::bad_range, PageStatus::bad_range,
                          PageStatus::bad_range, PageStatus::ok}));
  expect_bystander_served();
}

TEST_F(HostileWorker, EmptyAndMegabyteKeysAreBadKeysPageByPage) {
  EXPECT_EQ(worker->pages(Op::set, {{"", region, 0, 1},
                                    {std::string(1 << 20, 'k'), region, 0, 1},
                                    {std::string(4097, 'k'), region, 0, 1},
                                    {std::string(4096, 'k'), region, 0, 1}}),
            status_bytes(
                {PageStatus::bad_key, PageStatus::bad_key, PageStatus::bad_key, PageStatus::ok}));
  expect_bystander_served();
}

TEST_F(HostileWorker, HalfAFrameAndGoneIsForgotten) {
  const auto full = worker->head(Op::get, 4000, 100) + std::string(4000, 'x');
  for (const size_t bytes : {size_t{1}, size_t{23}, size_t{24}, size_t{25}, full.size() - 1}) {
    RawWorker half(config.socket_path);
    half.hello();
    half.send_bytes(full.substr(0, bytes));
  }
  EXPECT_TRUE(eventually([&] { return server->workers().size() == 2; }));
  expect_bystander_served();
}

TEST_F(HostileWorker, AFrameInSmallPiecesIsStillAFrame) {
  const auto body = pack_pages({{"k", region, 0, 9}});
  const auto frame = worker->head(Op::set, static_cast<uint32_t>(body.size()), 1) + body;
  for (const char byte : frame) ASSERT_TRUE(worker->send_bytes(std::string(1, byte)));
  EXPECT_EQ(worker->receive()->body, status_bytes({PageStatus::ok}));
}

TEST_F(HostileWorker, AWrongTokenOpensNothing) {
  auto token = worker->token;
  token[5] ^= 1;
  RawWorker thief(config.socket_path);
  expect_error(thief.hello("test", token), ErrorCode::no_attachment);
  EXPECT_TRUE(thief.closed_by_daemon());
  expect_bystander_served();
}

TEST_F(HostileWorker, ATokenIsForItsNamespaceOnly) {
  RawWorker second(config.socket_path);
  expect_error(second.hello("another", worker->token), ErrorCode::bad_value);
}

TEST_F(HostileWorker, ATokenInAnotherUsersHandsOpensNothing) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become another user";
  config.socket_mode = 0666;
  server.reset();
  start();
  // By default, only its owner may enter the socket's directory.
  ASSERT_EQ(::chmod((dir / "").c_str(), 0755), 0);
  worker = attached();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(9);
    RawWorker thief(config.socket_path);
    const auto reply = thief.hello("test", worker->token);
    ::_exit(reply && reply->error() == ErrorCode::no_attachment ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(HostileWorker, OtherProtocolVersionIsRefusedByNumber) {
  ipc::HelloHead hello_head;
  hello_head.protocol_version = 99;
  std::string body;
  append(body, hello_head);
  RawWorker newer(config.socket_path);
  expect_error(newer.ask(Op::hello, body, 0, 0, {newer.gate.fd.get()}), ErrorCode::bad_version,
               "99");
}

TEST_F(HostileWorker, AGatePageThatCouldBeTruncatedIsRefused) {
  const Memory loose(kGatePageBytes, 0);
  ipc::HelloHead hello_head;
  hello_head.protocol_version = ipc::kProtocolVersion;
  std::string body;
  append(body, hello_head);
  RawWorker other(config.socket_path);
  expect_error(other.ask(Op::hello, body, 0, 0, {loose.fd.get()}), ErrorCode::bad_value,
               "MFD_ALLOW_SEALING");
}

TEST_F(HostileWorker, OnlySharedMemoryOfTheAnnouncedSizeBecomesARegion) {
  const UniqueFd disk(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(worker->share(disk, 4096), 0u);
  EXPECT_NE(worker->last->body.find("memfd"), std::string::npos) << worker->last->body;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  EXPECT_EQ(worker->share(reader, 4096), 0u);
  const UniqueFd small = make_memfd(100);
  EXPECT_EQ(worker->share(small, 101), 0u);
  EXPECT_NE(worker->last->body.find("101"), std::string::npos) << worker->last->body;
  EXPECT_EQ(worker->share(small, 0), 0u);
  const UniqueFd empty = make_memfd(0);
  EXPECT_EQ(worker->share(empty, 1), 0u);
  EXPECT_NE(worker->share(small, 100), 0u);
  expect_bystander_served();
}

TEST_F(HostileWorker, ARegionCannotGrowUnderItsId) {
  ASSERT_EQ(::ftruncate(memory.fd.get(), 2 * kBytes), 0);
  EXPECT_EQ(worker->share(memory.fd, 2 * kBytes), 0u);
  EXPECT_EQ(worker->last->error(), ErrorCode::bad_value);
}

TEST_F(HostileWorker, RegionsOfOneWorkerAreBounded) {
  server.reset();
  config.regions_per_attachment_max = 2;
  config.region_bytes_max = 10'000;
  start();
  worker = attached();
  const UniqueFd one = make_memfd(8000);
  const UniqueFd two = make_memfd(4000);
  const UniqueFd three = make_memfd(10);
  const UniqueFd four = make_memfd(10);
  EXPECT_NE(worker->share(one, 8000), 0u);
  EXPECT_EQ(worker->share(two, 4000), 0u) << "12 000 bytes together";
  EXPECT_EQ(worker->last->error(), ErrorCode::limit);
  EXPECT_NE(worker->share(three, 10), 0u);
  EXPECT_EQ(worker->share(four, 10), 0u) << "a third region";
  EXPECT_EQ(worker->last->error(), ErrorCode::limit);
}

TEST_F(HostileWorker, WorkersConnectionsAndNamespacesAreBounded) {
  server.reset();
  config.attachments_max = 2;
  config.connections_max = 3;
  handler.namespaces_max = 2;
  start();
  auto first = attached();
  RawWorker nameless(config.socket_path);
  EXPECT_EQ(nameless.hello("a third namespace beside 'test'")->error(), ErrorCode::none);
  RawWorker third(config.socket_path);
  expect_error(third.hello(), ErrorCode::limit, "2 workers");
  RawWorker fourth(config.socket_path);
  expect_error(fourth.receive(), ErrorCode::limit);
  EXPECT_TRUE(fourth.closed_by_daemon());
  EXPECT_EQ(server->stats().refused, 1u);
  nameless.socket.reset();
  ASSERT_TRUE(eventually([&] { return server->workers().size() == 1; }));
  EXPECT_EQ(third.hello("a third one")->error(), ErrorCode::limit) << "namespaces stay";
  EXPECT_EQ(third.hello()->error(), ErrorCode::none) << "room again";
}

TEST_F(HostileWorker, UnprintableAndOverlongNamespacesAreRefused) {
  for (const std::string& ns :
       {std::string("\xff"), std::string("a\nb"), std::string("\xed\xa0\x80"), std::string(1, '\0'),
        std::string(1025, 'n')}) {
    RawWorker other(config.socket_path);
    EXPECT_EQ(other.hello(ns)->error(), ErrorCode::bad_value);
  }
  EXPECT_EQ(attached("größer, 模型")->ask(Op::ping)->error(), ErrorCode::none);
}

}  // namespace
}  // namespace peercached
