// Limits at the workers' socket: who may connect, how often, and for how long in silence.
#include <sys/stat.h>
#include <sys/wait.h>

#include "ipc_fixture.h"

namespace peercached {
namespace {

using ipc::Admission;
using ipc::ErrorCode;
using ipc::Op;
using ipc::Visitor;

constexpr uint32_t kNobody = 65534;

class IpcCrowd : public IpcTest {
 protected:
  void SetUp() override {
    config.notices = &notices;
    IpcTest::SetUp();
  }
  void expect_said(const std::string& part) {
    const auto said = notices.take();
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find(part), std::string::npos) << said[0];
  }
  Notices notices;
};

TEST_F(IpcCrowd, ConnectionWithoutHelloIsClosedAndAttachedOnesStay) {
  config.hello_timeout_ms = 100;
  restart();
  RawWorker silent(config.socket_path);
  RawWorker dribbling(config.socket_path);
  dribbling.send_bytes(dribbling.head(Op::hello, 60).substr(0, 10));
  EXPECT_TRUE(silent.closed_by_daemon());
  EXPECT_TRUE(dribbling.closed_by_daemon());
  EXPECT_TRUE(eventually([&] { return server->stats().late_hellos == 2; }));
  expect_said("sent no HELLO in 100 ms (and 1 more like it)");
  expect_bystander_served();
}

TEST_F(IpcCrowd, LargeBodyBeforeHelloIsRefused) {
  RawWorker worker(config.socket_path);
  worker.send_bytes(worker.head(Op::hello, 1 << 20));
  expect_error(worker.receive(), ErrorCode::bad_frame, "1048576 bytes before HELLO");
  EXPECT_TRUE(worker.closed_by_daemon());
  expect_bystander_served();
}

TEST_F(IpcCrowd, ConnectionsPerProcessAreBoundedAndFreedOnClose) {
  config.admission.per_process_max = 3;  // the bystander is a connection of this process too
  restart();
  auto second = attached();
  auto third = std::make_unique<RawWorker>(config.socket_path);
  ASSERT_EQ(third->hello()->error(), ErrorCode::none);
  for (int i = 0; i < 50; ++i) {
    RawWorker flood(config.socket_path);
    expect_error(flood.receive(), ErrorCode::limit, "has 3 connections");
  }
  EXPECT_EQ(server->stats().crowded, 50u);
  expect_said("the limit for one process: close some (and 49 more like it)");
  expect_bystander_served();
  third.reset();
  EXPECT_TRUE(eventually([&] {
    RawWorker again(config.socket_path);
    const auto reply = again.hello();
    return reply && reply->error() == ErrorCode::none;
  }));
}

TEST_F(IpcCrowd, OneProcessAttachesOnlySoOften) {
  config.attachments_per_process_max = 2;
  restart();
  auto second = attached();
  RawWorker third(config.socket_path);
  EXPECT_EQ(third.hello()->error(), ErrorCode::limit);
  RawWorker joins(config.socket_path);
  EXPECT_EQ(joins.hello("test", second->token)->error(), ErrorCode::none) << "that is no new one";
  expect_said("is attached 2 times");
}

TEST_F(IpcCrowd, AnotherUsersConnectionsAreRefusedByName) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  config.socket_mode = 0666;
  config.admission.users = {12345};
  restart();
  const std::string folder = std::filesystem::path(config.socket_path).parent_path();
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  // Returns 0 if the reply is `expected`, 1 if it is another.
  const auto visit = [&](uint32_t uid, uint32_t gid, ErrorCode expected) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(gid, gid, gid) != 0 || ::setresuid(uid, uid, uid) != 0) ::_exit(2);
      RawWorker worker(config.socket_path);
      const auto reply = expected == ErrorCode::none ? worker.hello() : worker.receive();
      ::_exit(reply && reply->error() == expected ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(visit(kNobody, kNobody, ErrorCode::forbidden), 0);
  EXPECT_EQ(visit(12345, kNobody, ErrorCode::none), 0);
  EXPECT_EQ(server->stats().forbidden, 1u);
  expect_said("of user 65534, group 65534 is neither in worker_users nor in worker_groups");
  expect_bystander_served();
}

TEST_F(IpcCrowd, TheSocketIsGivenToAGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file to any group";
  config.socket_group = 12345;
  restart();
  struct stat status;
  ASSERT_EQ(::stat(config.socket_path.c_str(), &status), 0);
  EXPECT_EQ(status.st_gid, 12345u);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
}

TEST(Admission, GoesByUserGroupAndSupplementaryGroup) {
  Visitor visitor;
  visitor.uid = 7;
  visitor.gid = 8;
  visitor.groups = {9, 10};
  EXPECT_TRUE(Admission{}.permits(visitor)) << "the socket's mode decides alone";
  EXPECT_TRUE((Admission{{7}, {}, 0, 0}.permits(visitor)));
  EXPECT_TRUE((Admission{{}, {8}, 0, 0}.permits(visitor)));
  EXPECT_TRUE((Admission{{1}, {10}, 0, 0}.permits(visitor)));
  EXPECT_FALSE((Admission{{8}, {7}, 0, 0}.permits(visitor)));
  visitor.uid = 0;
  EXPECT_TRUE((Admission{{8}, {7}, 0, 0}.permits(visitor))) << "root could be anyone";
}

TEST(Crowd, UnidentifiedProcessesHaveOnlyTheUserBound) {
  Admission admission;
  admission.per_process_max = 1;
  admission.per_user_max = 3;
  ipc::Crowd crowd(admission);
  Visitor visitor;  // of a user without other connections
  visitor.uid = 1;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(crowd.enter(visitor), "");
  EXPECT_NE(crowd.enter(visitor), "");
  visitor.uid = 2;
  EXPECT_EQ(crowd.enter(visitor), "") << "another user has a bound of its own";
}

TEST(Notices, EachKindIsReportedOncePerInterval) {
  Notices notices;
  const TimePoint start = Clock::now();
  for (int i = 0; i < 1000; ++i) notices.say("a", "number " + std::to_string(i));
  notices.say("b", std::string(5000, 'x'));
  auto said = notices.take(start);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0], "number 0 (and 999 more like it)");
  EXPECT_EQ(said[1].size(), Notices::kSentenceBytesMax);
  notices.say("a", "again");
  EXPECT_TRUE(notices.take(start + std::chrono::seconds(1)).empty());
  said = notices.take(start + std::chrono::seconds(6));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0], "again");
}

}  // namespace
}  // namespace peercached
