// The guarantees for a well-behaved worker.
#include "device_memory.h"
#include "ipc/frame_stream.h"
#include "ipc_fixture.h"

namespace peercached {
namespace {

using ipc::ErrorCode;
using ipc::kFeatureDevice;
using ipc::kFlagLayout;
using ipc::Op;

TEST_F(IpcWorker, APageSetIsReadBackByteForByte) {
  for (size_t i = 0; i < 3000; ++i) memory.at[i] = static_cast<char>(i * 7);
  EXPECT_EQ(worker->pages(Op::set, {{"a", region, 0, 1000}, {"b", region, 1000, 2000}}),
            status_bytes({PageStatus::ok, PageStatus::ok}));
  EXPECT_EQ(worker->pages(Op::get, {{"b", region, 10000, 2000},
                                    {"nobody", region, 20000, 1},
                                    {"a", region, 30001, 1000}}),
            status_bytes({PageStatus::ok, PageStatus::absent, PageStatus::ok}));
  EXPECT_EQ(std::memcmp(memory.at + 10000, memory.at + 1000, 2000), 0);
  EXPECT_EQ(std::memcmp(memory.at + 30001, memory.at, 1000), 0);
  EXPECT_EQ(worker->last->header.value, 2u);
  EXPECT_EQ(worker->last->header.count, 3u);
}

// This happens after SIGSTOP, or when the machine was paused.
TEST(FrameStream, HelloAlreadyReceivedIsReadAfterItsTimeout) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ipc::FrameMemory memory(0, 0);
  ipc::FrameStream stream{UniqueFd(ends[0]), memory, 0};
  const UniqueFd worker(ends[1]);
  ipc::RequestHeader header;
  header.op = static_cast<uint16_t>(ipc::Op::hello);
  ASSERT_EQ(::send(worker.get(), &header, sizeof(header), 0), ssize_t{sizeof(header)});
  ipc::Frame frame;
  EXPECT_TRUE(stream.read_hello(frame, Deadline::after_ms(-1)));
  EXPECT_FALSE(stream.read_hello(frame, Deadline::after_ms(-1))) << "nothing has come";
}

TEST_F(IpcTest, HelloReplyHasVersionIncarnationAndPageLimit) {
  RawWorker worker(config.socket_path);
  const auto reply = worker.hello();
  ASSERT_TRUE(reply);
  ipc::HelloReply answer;
  ASSERT_GE(reply->body.size(), sizeof(answer));
  std::memcpy(&answer, reply->body.data(), sizeof(answer));
  EXPECT_EQ(answer.protocol_version, ipc::kProtocolVersion);
  EXPECT_EQ(answer.incarnation, 77u);
  EXPECT_EQ(answer.pages_max, ipc::kPagesMax);
  EXPECT_EQ(reply->body.substr(sizeof(answer)), "1.2.3");
}

TEST_F(IpcWorker, ExistsReturnsThePrefixAndOptionallyABitmap) {
  worker->pages(Op::set, {{"a", region, 0, 1}, {"b", region, 0, 1}, {"d", region, 0, 1}});
  auto reply = worker->ask(Op::exists, pack_keys({"a", "b", "c", "d"}), 4);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.value, 2u);
  EXPECT_EQ(reply->body, "");
  reply = worker->ask(Op::exists, pack_keys({"a", "", "c", "d"}), 4, ipc::kFlagBitmap);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.value, 1u);
  EXPECT_EQ(reply->body, std::string({1, 0, 0, 1}));
}

TEST_F(IpcTest, RemoveAndClearTakePagesAwayFromThisNamespaceOnly) {
  auto worker = attached("one");
  auto other = attached("two");
  Memory memory(kBytes);
  const uint32_t region = worker->share(memory.fd, kBytes);
  const uint32_t other_region = other->share(memory.fd, kBytes);
  worker->pages(Op::set, {{"a", region, 0, 1}, {"b", region, 0, 1}});
  other->pages(Op::set, {{"a", other_region, 0, 1}});
  auto reply = worker->ask(Op::remove, pack_keys({"a", "x"}), 2);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->body, status_bytes({PageStatus::ok, PageStatus::absent}));
  reply = worker->ask(Op::clear);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.value, 0u);
  EXPECT_EQ(worker->ask(Op::exists, pack_keys({"b"}), 1)->header.value, 0u);
  EXPECT_EQ(other->ask(Op::exists, pack_keys({"a"}), 1)->header.value, 1u);
}

TEST_F(IpcTest, ClearReportsUnreachedNodes) {
  handler.unreached = "node n3 does not answer";
  const auto reply = attached()->ask(Op::clear);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header.value, 1u);
  EXPECT_EQ(reply->body, "node n3 does not answer");
}

TEST_F(IpcWorker, TheParentKeyReachesTheEngine) {
  EXPECT_EQ(worker->pages(Op::set, {{"child", region, 0, 1}}, "the parent"),
            status_bytes({PageStatus::ok}));
  EXPECT_EQ(handler.last_parent, "the parent");
}

TEST_F(IpcWorker, AConnectionWithTheTokenSharesTheRegions) {
  RawWorker second(config.socket_path);
  ASSERT_EQ(second.hello("test", worker->token)->error(), ErrorCode::none);
  EXPECT_EQ(second.token, worker->token);
  EXPECT_EQ(second.pages(Op::set, {{"k", region, 0, 100}}), status_bytes({PageStatus::ok}));
  // The attachment outlives the connection that created it.
  worker->socket.reset();
  ASSERT_TRUE(eventually([&] { return server->stats().connections == 2; }));
  EXPECT_EQ(second.pages(Op::get, {{"k", region, 0, 100}}), status_bytes({PageStatus::ok}));
}

TEST_F(IpcWorker, TheSameFileRegisteredTwiceIsOneRegion) {
  const UniqueFd again(::dup(memory.fd.get()));
  EXPECT_EQ(worker->share(again, 4096), region);
  const auto workers = server->workers();
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[0].regions + workers[1].regions, 2u);
}

TEST_F(IpcWorker, AnUnregisteredRegionIsGone) {
  EXPECT_EQ(worker->ask(Op::unregister_region, "", region)->error(), ErrorCode::none);
  EXPECT_EQ(worker->pages(Op::set, {{"k", region, 0, 1}}), status_bytes({PageStatus::bad_region}));
  EXPECT_EQ(worker->ask(Op::unregister_region, "", region)->error(), ErrorCode::bad_value);
  const uint32_t next = worker->share(memory.fd, kBytes);
  EXPECT_NE(next, region) << "ids are not used twice";
}

TEST_F(IpcWorker, RegionUnregisteredDuringAGetStaysMapped) {
  memory.at[0] = 'x';
  worker->pages(Op::set, {{"k", region, 0, 1}});
  RawWorker second(config.socket_path);
  second.hello("test", worker->token);
  begin_get(500);
  EXPECT_EQ(second.ask(Op::unregister_region, "", region)->error(), ErrorCode::none);
  handler.open_door();
  EXPECT_EQ(worker->receive()->body, status_bytes({PageStatus::ok}));
  EXPECT_EQ(memory.at[500], 'x');
}

// Its memory may be freed then, and a copy cannot be stopped.
TEST_F(IpcWorker, RegionOfADeviceIsUnregisteredOnceNoGetUsesIt) {
  DeviceMemory gpu(4096);
  RawWorker getter(config.socket_path), other(config.socket_path);
  getter.hello("test", worker->token, kFeatureDevice);
  other.hello("test", worker->token, kFeatureDevice);
  ipc::RegisterDevice told;
  told.bytes = 4096;
  told.kind = static_cast<uint32_t>(device::Kind::stand_in);
  told.identity = {5, 6};
  std::string body;
  append(body, told);
  const auto registered = other.ask(Op::register_device, body, 0, 0, {gpu.handle().file});
  ASSERT_EQ(registered->error(), ErrorCode::none) << registered->body;
  const uint32_t of_gpu = registered->header.value;

  body.clear();
  append(body, uint32_t{1});    // bytes of the key
  append(body, of_gpu);         // one region for each Rows
  append(body, uint64_t{3});    // the page's number
  append(body, uint32_t{100});  // its length
  body += "k";
  append(body, ipc::Rows{0, 100, 0, 100, 1, 0, 0});
  for (int i = 0; i < 2; ++i) append(body, uint32_t{1});  // rows of the layout, layouts
  handler.shut_door();
  getter.send_bytes(getter.head(Op::get, static_cast<uint32_t>(body.size()), 1, kFlagLayout) +
                    body);
  handler.wait_for_visitor();
  other.send_bytes(other.head(Op::unregister_region, 0, of_gpu));
  // It is gone at once for later requests.
  RawWorker later(config.socket_path);
  later.hello("test", worker->token, kFeatureDevice);
  EXPECT_TRUE(eventually([&] {
    return later.ask(Op::unregister_region, "", of_gpu)->error() == ErrorCode::bad_value;
  }));
  EXPECT_FALSE(other.answered());
  handler.open_door();
  EXPECT_EQ(getter.receive()->body, status_bytes({PageStatus::absent}));
  EXPECT_EQ(other.receive()->error(), ErrorCode::none);
}

TEST_F(IpcWorker, AFencedConnectionWritesNothingMore) {
  memory.at[0] = 'x';
  worker->pages(Op::set, {{"k", region, 0, 1}});
  begin_get(500);
  worker->gate_page().fence = 1;
  EXPECT_EQ(worker->gate_page().writers, 0u);
  handler.open_door();
  EXPECT_EQ(worker->receive()->body, status_bytes({PageStatus::deadline}));
  EXPECT_EQ(memory.at[500], 0);
}

TEST_F(IpcWorker, GivenUpRequestIsCountedAndReportedWhileItLasts) {
  const auto told = [&] {
    const auto workers = server->workers();
    return std::ranges::max(workers, {}, &WorkerInfo::attachment);  // the last one attached
  };
  begin_get(500);
  worker->gate_page().writers = 1;  // as if a thread were in the middle of a copy
  EXPECT_EQ(told().stuck, 0u) << "the worker waits for it";
  worker->gate_page().fence = 1;
  EXPECT_EQ(told().stuck, 1u);
  EXPECT_EQ(told().given_up, 0u);
  worker->gate_page().writers = 0;
  EXPECT_EQ(told().stuck, 0u) << "the memory is the worker's again";
  handler.open_door();
  EXPECT_TRUE(worker->receive());
  EXPECT_EQ(told().given_up, 1u);
  EXPECT_EQ(server->stats().given_up, 1u);
}

TEST_F(IpcWorker, WorkerDyingDuringAGetIsReclaimedAfterwards) {
  begin_get(0);
  worker.reset();
  EXPECT_EQ(server->workers().size(), 2u) << "its memory is in use";
  handler.open_door();
  EXPECT_TRUE(eventually([&] { return server->workers().size() == 1; }));
  expect_bystander_served();
}

TEST_F(IpcTest, StoppingDaemonClosesIdleConnections) {
  auto worker = attached();
  server.reset();
  EXPECT_TRUE(worker->closed_by_daemon());
  EXPECT_TRUE(bystander->closed_by_daemon());
  EXPECT_FALSE(std::filesystem::exists(config.socket_path));
}

TEST_F(IpcWorker, StopWaitsForARunningGetAndItsReply) {
  begin_get(0);
  std::thread stopper([&] { server.reset(); });
  // The idle bystander is closed first, which shows that the stop is in progress.
  EXPECT_TRUE(bystander->closed_by_daemon());
  handler.open_door();
  const auto reply = worker->receive();
  ASSERT_TRUE(reply) << "an end of stream would have promised silence";
  EXPECT_EQ(reply->body, status_bytes({PageStatus::absent}));
  stopper.join();
}

TEST_F(IpcTest, WorkersAndCountersAreShown) {
  auto worker = attached("shown");
  Memory memory(kBytes);
  worker->share(memory.fd, 5000);
  worker->ask(Op::ping);
  const auto workers = server->workers();
  ASSERT_EQ(workers.size(), 2u);
  const auto& info = workers[workers[0].ns == "shown" ? 0 : 1];
  EXPECT_EQ(info.name, "name");
  EXPECT_EQ(info.pid, static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(info.uid, ::getuid());
  EXPECT_EQ(info.regions, 1u);
  EXPECT_EQ(info.region_bytes, 5000u);
  EXPECT_EQ(info.requests, 2u);
  EXPECT_EQ(server->stats().accepted, 2u);
  EXPECT_EQ(server->stats().connections, 2u);
}

TEST_F(IpcTest, StatsComeFromTheEngineAndItsFailureIsText) {
  auto worker = attached();
  EXPECT_EQ(worker->ask(Op::stats)->body, "{\"pages\": 1}");
  handler.stats_fail = true;
  const auto reply = worker->ask(Op::stats);
  EXPECT_EQ(reply->error(), ErrorCode::failed);
  EXPECT_EQ(reply->body, "the statistics are out of order");
  EXPECT_EQ(worker->ask(Op::ping)->error(), ErrorCode::none);
}

TEST_F(IpcWorker, ABatchOfTheLargestSizeIsServed) {
  std::vector<Page> pages(ipc::kPagesMax);
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i] = {"key" + std::to_string(i), region, i % kBytes, 1};
  }
  const std::string all_fine(pages.size(), '\0');
  EXPECT_EQ(worker->pages(Op::set, pages), all_fine);
  EXPECT_EQ(worker->pages(Op::get, pages), all_fine);
}

}  // namespace
}  // namespace peercached
