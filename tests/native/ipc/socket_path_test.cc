// The right of a process to take over a socket path.
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>

#include "ipc_fixture.h"

namespace peercached {
namespace {

std::string refusal(const IpcServerConfig& config, RequestHandler& handler) {
  try {
    const IpcServer server(config, handler);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

class SocketPathTest : public ::testing::Test {
 protected:
  void SetUp() override { config.socket_path = dir / "d.sock"; }
  TempDir dir;
  IpcServerConfig config;
  FakeHandler handler;
};

TEST_F(SocketPathTest, ALiveDaemonKeepsItsSocket) {
  IpcServer first(config, handler);
  first.serve();
  const std::string text = refusal(config, handler);
  EXPECT_NE(text.find(config.socket_path), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(::getpid())), std::string::npos) << text;
  RawWorker worker(config.socket_path);
  EXPECT_TRUE(worker.hello());
}

TEST_F(SocketPathTest, ABoundSocketRefusesWorkersAndOtherDaemons) {
  IpcServer starting(config, handler);
  EXPECT_NE(refusal(config, handler).find("another daemon"), std::string::npos);
  const UniqueFd early(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  config.socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_NE(::connect(early.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(errno, ECONNREFUSED);
  starting.serve();
  RawWorker worker(config.socket_path);
  EXPECT_TRUE(worker.hello());
}

TEST_F(SocketPathTest, ADeadDaemonsSocketIsTakenOver) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    IpcServer server(config, handler);
    server.serve();
    ::_exit(0);  // like a kill: nothing is cleaned up
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(std::filesystem::is_socket(config.socket_path));
  IpcServer server(config, handler);
  server.serve();
  RawWorker worker(config.socket_path);
  EXPECT_TRUE(worker.hello());
}

TEST_F(SocketPathTest, AnotherProgramsLiveSocketIsLeftAlone) {
  const UniqueFd other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  config.socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  EXPECT_NE(refusal(config, handler).find("answers"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_socket(config.socket_path));
}

TEST_F(SocketPathTest, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(config.socket_path) << "precious";
  const std::string text = refusal(config, handler);
  EXPECT_NE(text.find("no socket"), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::is_regular_file(config.socket_path));
}

TEST_F(SocketPathTest, AMissingDirectoryIsMade) {
  config.socket_path = dir / "a/b/d.sock";
  EXPECT_EQ(refusal(config, handler), "");
}

TEST_F(SocketPathTest, TooLongOrUnusablePathIsRefusedWithTheReason) {
  config.socket_path = dir / std::string(120, 'x');
  EXPECT_NE(refusal(config, handler).find("shorter"), std::string::npos);
  std::ofstream(dir / "file") << "no directory";
  config.socket_path = dir / "file/d.sock";
  const std::string text = refusal(config, handler);
  EXPECT_NE(text.find(config.socket_path), std::string::npos) << text;
}

TEST_F(SocketPathTest, SocketModeIgnoresTheUmask) {
  const mode_t old = ::umask(0777);
  {
    const IpcServer server(config, handler);
    ::umask(old);
    struct stat status;
    ASSERT_EQ(::stat(config.socket_path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0660u);
  }
  EXPECT_EQ(refusal(config, handler), "");
}

}  // namespace
}  // namespace peercached
