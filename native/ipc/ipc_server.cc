#include "ipc/ipc_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/event_fd.h"
#include "common/fault_guard.h"
#include "common/thread_name.h"
#include "ipc/connection.h"
#include "ipc/server_state.h"
#include "ipc/socket_path.h"

namespace peercached {

using ipc::Connection;
using ipc::ErrorCode;
using ipc::ReplyHeader;
using ipc::ServerState;
using ipc::SocketPath;
using ipc::UniqueFd;

namespace {

// A spare descriptor. Closing it lets the server accept and refuse a connection when all are used.
UniqueFd make_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

struct IpcServer::Impl {
  Impl(const IpcServerConfig& config, RequestHandler& handler)
      : state(config, handler),
        path(std::in_place, config.socket_path, config.socket_mode, config.socket_group),
        reserve(make_reserve()) {}

  ~Impl() { stop(); }

  void stop() {
    if (acceptor.joinable()) {
      stopping = true;
      ring(wake.get());
      acceptor.join();
    }
    path.reset();
  }

  void serve() {
    path->listen();
    acceptor = named_thread("accept workers", [this] { accept_all(); });
  }

  // A connection and its thread. The acceptor is the only owner: it joins and frees them.
  struct Running {
    Running(ServerState& state, UniqueFd socket, const ipc::Visitor& visitor_)
        : visitor(visitor_), connection(state, std::move(socket), visitor) {}
    const ipc::Visitor visitor;
    Connection connection;
    std::thread thread;
    std::atomic<bool> finished{false};
  };

  void accept_all() {
    while (!stopping) {
      pollfd waits[2] = {{path->listener(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
      if (::poll(waits, 2, -1) < 0) continue;
      if (waits[1].revents != 0) {
        hush(wake.get());
        reap();
      }
      if (waits[0].revents != 0 && !stopping) accept_one();
    }
    for (auto& one : running) one.connection.stop();
    for (auto& one : running) one.thread.join();
    running.clear();
    state.counters.connections.store(0);
  }

  void reap() {
    for (auto one = running.begin(); one != running.end();) {
      if (!one->finished) {
        ++one;
        continue;
      }
      one->thread.join();
      crowd.leave(one->visitor);
      one = running.erase(one);
      --state.counters.connections;
    }
  }

  void accept_one() {
    if (!reserve) reserve = make_reserve();
    UniqueFd socket(::accept4(path->listener(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno != EMFILE && errno != ENFILE) return;
      // Accept and refuse, else the listener would stay readable and this thread would spin.
      reserve.reset();
      socket.reset(::accept4(path->listener(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket) refuse(std::move(socket), "the daemon has no file descriptors left");
      return;
    }
    if (running.size() >= state.config.connections_max) reap();
    if (running.size() >= state.config.connections_max) {
      refuse(std::move(socket), std::to_string(running.size()) +
                                    " connections are open, the most that may be: close some");
      return;
    }
    const ipc::Visitor visitor = ipc::Visitor::at(socket.get());
    if (!state.config.admission.permits(visitor)) {
      ++state.counters.forbidden;
      refuse(std::move(socket), visitor.name() + " is neither in worker_users nor in worker_groups",
             ErrorCode::forbidden);
      return;
    }
    std::string why = crowd.enter(visitor);
    if (!why.empty()) {
      reap();  // some of them may be over
      why = crowd.enter(visitor);
    }
    if (!why.empty()) {
      ++state.counters.crowded;
      refuse(std::move(socket), why);
      return;
    }
    Running& one = running.emplace_back(state, std::move(socket), visitor);
    ++state.counters.connections;
    ++state.counters.accepted;
    try {
      one.thread = named_thread("worker", [this, &one] {
        one.connection.run();
        one.finished = true;
        ring(wake.get());
      });
    } catch (const std::system_error&) {
      ++state.counters.refused;
      --state.counters.connections;
      crowd.leave(visitor);
      running.pop_back();
    }
  }

  void refuse(UniqueFd socket, const std::string& text, ErrorCode code = ErrorCode::limit) {
    ++state.counters.refused;
    say(state.config.notices, code == ErrorCode::limit ? "ipc full" : "ipc forbidden",
        "refused a worker: " + text);
    struct {
      ReplyHeader header;
      char text[200];
    } reply = {};
    const size_t text_bytes = text.copy(reply.text, sizeof(reply.text));
    reply.header.body_bytes = static_cast<uint32_t>(text_bytes);
    reply.header.op = static_cast<uint16_t>(ipc::Op::hello) | ipc::kReplyBit;
    reply.header.error = static_cast<uint16_t>(code);
    ::send(socket.get(), &reply, sizeof(reply.header) + text_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(socket.get(), SHUT_RDWR);
    ipc::close_aside(std::move(socket));
  }

  ServerState state;
  std::optional<SocketPath> path;  // until it stops
  EventFd wake;
  UniqueFd reserve;
  std::list<Running> running;
  ipc::Crowd crowd{state.config.admission};  // the running connections
  std::atomic<bool> stopping{false};
  std::thread acceptor;  // uses all of the above
};

IpcServer::IpcServer(const IpcServerConfig& config, RequestHandler& handler) {
  install_fault_guard();
  impl_ = std::make_unique<Impl>(config, handler);
}

IpcServer::~IpcServer() = default;

void IpcServer::serve() { impl_->serve(); }

void IpcServer::stop() { impl_->stop(); }

IpcStats IpcServer::stats() const { return impl_->state.counters; }

std::vector<WorkerInfo> IpcServer::workers() const { return impl_->state.workers(); }

}  // namespace peercached
