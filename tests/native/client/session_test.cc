// A session and a real server in one process. tests/unit/test_client_* test the Python layer.
#include "client/session.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "ipc/ipc_fixture.h"

namespace peercached::client {
namespace {

using namespace std::chrono_literals;

class Interrupted {};

// Waits of a program without other threads. `interrupt` is its signal handler, which may throw.
class TestWaits : public Waits {
 public:
  bool ready(int fd, short events, TimePoint until) override {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd wanted = {fd, events, 0};
    // Polls in short steps, so that `interrupt` is called often.
    const int step_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 5));
    const int found = ::poll(&wanted, fd < 0 ? 0 : 1, step_ms);
    if (interrupt) interrupt();
    return found > 0 || (left > step_ms && ready(fd, events, until));
  }
  void pause(std::chrono::microseconds time) override { std::this_thread::sleep_for(time); }

  void landed(uint32_t count) override { stages.push_back(count); }

  std::function<void()> interrupt;
  std::vector<uint32_t> stages;
};

class SessionTest : public IpcTest {
 protected:
  static constexpr uint32_t kPage = 4096;

  void SetUp() override {
    IpcTest::SetUp();
    session_ = std::make_unique<Session>(config.socket_path, "test", "a test");
    segment_ = Segment::create(kBytes, "test");
    hold_ = segments_.hold(segment_);
    mapping_ = std::make_unique<Mapping>(*segment_);
  }

  Answer ask(ipc::Op op, std::chrono::milliseconds time = 10s) {
    return session_->ask({.op = op, .end = Clock::now() + time}, waits_);
  }

  // Sets or gets one page of the segment.
  Answer move(ipc::Op op, uint64_t offset, std::chrono::milliseconds time = 10s,
              std::optional<std::chrono::microseconds> silence = 1s,
              std::shared_ptr<Cancel> cancel = nullptr) {
    const std::string key = "key";
    const auto key_bytes = static_cast<uint32_t>(key.size());
    const uint32_t length = kPage;
    Request request{.op = op, .count = 1, .end = Clock::now() + time, .silence = silence};
    request.body = {std::as_bytes(std::span(&key_bytes, 1)), std::as_bytes(std::span(&offset, 1)),
                    std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(key))};
    request.segments = {segment_};
    request.cancel = std::move(cancel);
    return session_->ask(request, waits_);
  }

  ::testing::AssertionResult moved(const Answer& reply) {
    if (reply.outcome == Outcome::reply && reply.body == status_bytes({PageStatus::ok})) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "result " << static_cast<int>(reply.outcome);
  }

  size_t regions_at_the_server() {
    size_t regions = 0;
    for (const WorkerInfo& worker : server->workers()) regions += worker.regions;
    return regions - 1;  // the bystander's
  }

  TestWaits waits_;
  std::unique_ptr<Session> session_;
  Segments segments_;
  std::shared_ptr<Segment> segment_;
  std::unique_ptr<Hold> hold_;
  std::unique_ptr<Mapping> mapping_;
};

TEST_F(SessionTest, APageComesBackByteForByte) {
  std::memset(mapping_->base(), 'p', kPage);
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  EXPECT_TRUE(moved(move(ipc::Op::get, kPage)));
  EXPECT_EQ(std::memcmp(mapping_->base(), mapping_->base() + kPage, kPage), 0);
  EXPECT_EQ(regions_at_the_server(), 1u);
}

TEST_F(SessionTest, ARefusalIsASentenceAndTheConnectionGoesOn) {
  handler.stats_fail = true;
  const Answer reply = ask(ipc::Op::stats);
  EXPECT_EQ(reply.outcome, Outcome::refused);
  EXPECT_EQ(reply.body, "the statistics are out of order");
  EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
  EXPECT_EQ(server->stats().accepted, 2u) << "the bystander's and one";
}

TEST_F(SessionTest, CallsFailWhileServerIsAwayAndReconnectLater) {
  EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
  bystander.reset();
  server.reset();
  EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::lost);
  EXPECT_FALSE(session_->last_error().empty());
  start();
  EXPECT_TRUE(eventually([this] { return ask(ipc::Op::ping).outcome == Outcome::reply; }));
  EXPECT_EQ(session_->reconnects(), 1u);
  EXPECT_TRUE(session_->last_error().empty());
  EXPECT_TRUE(moved(move(ipc::Op::set, 0))) << "its region is passed on anew";
}

TEST_F(SessionTest, UnheldSegmentIsUnregisteredAtTheServer) {
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  EXPECT_EQ(regions_at_the_server(), 1u);
  hold_.reset();
  session_->sweep(Clock::now() + 10s, waits_);
  EXPECT_EQ(regions_at_the_server(), 0u);
}

TEST_F(SessionTest, SameFileSharesOneSegmentWhileHeld) {
  const auto again = std::make_shared<Segment>(Descriptor::duplicate(segment_->file()));
  auto hold = segments_.hold(again);
  EXPECT_EQ(hold->segment(), segment_);
  const auto other = std::make_shared<Segment>(Descriptor::duplicate(segment_->file()));
  hold.reset();
  hold_.reset();
  EXPECT_TRUE(segment_->dead());
  EXPECT_EQ(segments_.hold(other)->segment(), other);
}

TEST_F(SessionTest, NothingIsWrittenAfterAHandlerRaises) {
  std::memset(mapping_->base(), 'p', kPage);
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  handler.shut_door();
  waits_.interrupt = [] { throw Interrupted(); };
  EXPECT_THROW(move(ipc::Op::get, kPage), Interrupted);
  waits_.interrupt = nullptr;
  handler.open_door();
  EXPECT_TRUE(eventually([this] { return ask(ipc::Op::ping).outcome == Outcome::reply; }));
  EXPECT_TRUE(moved(move(ipc::Op::get, 2 * kPage)));
  EXPECT_EQ(static_cast<char>(mapping_->base()[kPage]), 0) << "it was written after the exception";
}

TEST_F(SessionTest, HandlerCanUseTheSessionDuringACall) {
  handler.shut_door();
  std::memset(mapping_->base(), 'p', kPage);
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  bool called = false;
  waits_.interrupt = [&] {
    if (std::exchange(called, true)) return;
    EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
    session_->sweep(Clock::now() + 1s, waits_);
    session_->close(waits_);  // does not wait for the call that it interrupts
    handler.open_door();
  };
  EXPECT_TRUE(moved(move(ipc::Op::get, kPage))) << "it was under way";
  EXPECT_TRUE(called);
  EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::lost);
}

TEST_F(SessionTest, SilentServerIsUsedAgainOnceItAnswers) {
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  handler.shut_door();
  EXPECT_EQ(move(ipc::Op::get, kPage, 20ms).outcome, Outcome::late);
  EXPECT_FALSE(segment_->quarantined()) << "it was not writing";
  handler.open_door();
  EXPECT_TRUE(eventually([this] { return ask(ipc::Op::ping).outcome == Outcome::reply; }));
  EXPECT_TRUE(moved(move(ipc::Op::get, kPage)));
}

TEST_F(SessionTest, ReusedDescriptorNumberIsNeitherUsedNorClosed) {
  const int number = segment_->file();
  const int other = ::memfd_create("the program's own", MFD_CLOEXEC);
  ASSERT_EQ(::dup2(other, number), number);
  EXPECT_EQ(segment_->file(), -1);
  EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
  EXPECT_EQ(move(ipc::Op::set, 0).body, status_bytes({PageStatus::bad_region}));
  hold_.reset();
  struct stat status;
  EXPECT_EQ(::fstat(number, &status), 0) << "it is still open";
  ::close(number);
  ::close(other);
}

TEST_F(SessionTest, OpensMoreConnectionsOnceTheServerHasRoomAgain) {
  config.connections_max = 2;
  bystander.reset();
  restart();
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  handler.shut_door();
  int calls = 0;
  waits_.interrupt = [&] {
    if (calls++ != 0) return;
    EXPECT_EQ(ask(ipc::Op::ping, 100ms).outcome, Outcome::late) << "the bystander has the other";
    bystander.reset();
    EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
    handler.open_door();
  };
  EXPECT_TRUE(moved(move(ipc::Op::get, kPage)));
}

TEST_F(SessionTest, CancelEndsACallAndLeavesTheOtherConnections) {
  EXPECT_TRUE(moved(move(ipc::Op::set, 0)));
  handler.shut_door();
  const auto cancel = std::make_shared<Cancel>();
  int calls = 0;
  waits_.interrupt = [&] {
    if (calls++ != 0) return;
    EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
    cancel->cancel();
  };
  const TimePoint began = Clock::now();
  EXPECT_EQ(move(ipc::Op::get, kPage, 10s, 1s, cancel).outcome, Outcome::lost);
  EXPECT_EQ(move(ipc::Op::get, kPage, 10s, 1s, cancel).outcome, Outcome::lost) << "as before";
  EXPECT_LT(Clock::now() - began, 5s);
  EXPECT_EQ(server->stats().accepted, 3u) << "the bystander's and two";
  handler.open_door();
  EXPECT_TRUE(moved(move(ipc::Op::get, kPage)));
  EXPECT_EQ(session_->last_error(), "") << "the daemon was never away";
}

TEST_F(SessionTest, CancelEndsAllItsCallsAtEveryStep) {
  handler.shut_door();
  // A new session waits for HELLO, REGISTER and the page. A second call runs in the first wait.
  for (const int step : {0, 1, 2, 3, 4}) {
    session_ = std::make_unique<Session>(config.socket_path, "test", "a test");
    const auto cancel = std::make_shared<Cancel>();
    int calls = 0;
    waits_.interrupt = [&] {
      const int call = calls++;
      if (call == 0) {
        EXPECT_EQ(move(ipc::Op::get, 2 * kPage, 10s, 1s, cancel).outcome, Outcome::lost);
        calls = 100;
      }
      if (call == 1 + step) cancel->cancel();
    };
    const TimePoint began = Clock::now();
    EXPECT_EQ(move(ipc::Op::get, kPage, 10s, 1s, cancel).outcome, Outcome::lost);
    EXPECT_LT(Clock::now() - began, 5s) << "cancelled in wait " << step;
    waits_.interrupt = nullptr;
    EXPECT_EQ(ask(ipc::Op::ping).outcome, Outcome::reply);
    EXPECT_EQ(session_->last_error(), "") << "the daemon was never away";
  }
  handler.open_door();
}

}  // namespace
}  // namespace peercached::client
