// A server on its own socket, and the bystander: a second worker that must never notice the first
// one's actions.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "eventually.h"
#include "fake_handler.h"
#include "ipc/ipc_server.h"
#include "raw_worker.h"

namespace peercached {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/peercached-ipc-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string status_bytes(std::initializer_list<PageStatus> statuses) {
  std::string out;
  for (const auto status : statuses) out.push_back(static_cast<char>(status));
  return out;
}

class IpcTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 64 * 1024;

  void SetUp() override {
    config.socket_path = dir / "daemon.sock";
    config.version = "1.2.3";
    config.incarnation = 77;
    restart();
    ASSERT_NE(bystander_region, 0u);
  }

  void start() {
    server = std::make_unique<IpcServer>(config, handler);
    server->serve();
  }
  void restart() {
    server.reset();
    start();
    bystander = attached();
    bystander_region = bystander->share(bystander_memory.fd, kBytes);
  }

  std::unique_ptr<RawWorker> attached(const std::string& ns = "test") {
    auto worker = std::make_unique<RawWorker>(config.socket_path);
    const auto reply = worker->hello(ns);
    EXPECT_TRUE(reply && reply->error() == ipc::ErrorCode::none);
    return worker;
  }

  static void expect_error(const std::optional<Reply>& reply, ipc::ErrorCode error,
                           const std::string& mention = "") {
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->error(), error);
    EXPECT_NE(reply->body.find(mention), std::string::npos) << reply->body;
  }

  // The bystander sets and gets a page, as if nothing had happened.
  void expect_bystander_served() {
    std::memset(bystander_memory.at, 'b', 4096);
    std::memset(bystander_memory.at + 4096, 0, 4096);
    EXPECT_EQ(bystander->pages(ipc::Op::set, {{"bystander", bystander_region, 0, 4096}}),
              status_bytes({PageStatus::ok}));
    EXPECT_EQ(bystander->pages(ipc::Op::get, {{"bystander", bystander_region, 4096, 4096}}),
              status_bytes({PageStatus::ok}));
    EXPECT_EQ(std::memcmp(bystander_memory.at, bystander_memory.at + 4096, 4096), 0);
  }

  TempDir dir;
  IpcServerConfig config;
  FakeHandler handler;
  std::unique_ptr<IpcServer> server;
  Memory bystander_memory{kBytes};
  std::unique_ptr<RawWorker> bystander;
  uint32_t bystander_region = 0;
};

// A worker that shares its memory.
class IpcWorker : public IpcTest {
 protected:
  void SetUp() override {
    IpcTest::SetUp();
    worker = attached();
    region = worker->share(memory.fd, kBytes);
    ASSERT_NE(region, 0u);
  }
  // Begins a get of page "k", which waits in the handler until open_door().
  void begin_get(uint64_t offset) {
    handler.shut_door();
    const auto body = pack_pages({{"k", region, offset, 1}});
    worker->send_bytes(worker->head(ipc::Op::get, static_cast<uint32_t>(body.size()), 1) + body);
    handler.wait_for_visitor();
  }

  Memory memory{kBytes};
  std::unique_ptr<RawWorker> worker;
  uint32_t region = 0;
};

}  // namespace peercached
