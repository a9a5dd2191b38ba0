#include "transfer/tcp/tcp_server.h"

#include <poll.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "common/error_text.h"
#include "common/event_fd.h"
#include "common/mutex.h"
#include "common/thread_name.h"
#include "transfer/tcp/follow_server.h"
#include "transfer/tcp/server_channel.h"
#include "transfer/tcp/server_stream.h"
#include "transfer/tcp/socket.h"

namespace peercached {
namespace {

using tcp::Socket;

constexpr int kAcceptRetryMs = 20;  // after running out of descriptors or threads

Socket listen_on(const TcpServerConfig& config) {
  const std::string where =
      "cannot listen for readers of pages on " + config.host + ":" + std::to_string(config.port);
  tcp::Address address;
  std::string wrong;
  if (!tcp::resolve(config.host, config.port, address, wrong)) {
    throw std::runtime_error(where + ": " + wrong + ": set host to an address of this machine");
  }
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  if (!socket || setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(socket.fd(), address.get(), address.bytes) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    const std::string remedy =
        errno == EADDRNOTAVAIL
            ? "set host to an address of this machine"
            : "stop what uses the port, or set data_port to another (0: any that is free)";
    throw std::runtime_error(where + ": " + error_text(errno) + ": " + remedy);
  }
  return socket;
}

uint16_t port_of(int fd) {
  tcp::Address address;
  address.bytes = sizeof address.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    throw std::system_error(errno, std::generic_category(), "transfer server: own port");
  }
  // sin_port and sin6_port have the same offset, and are big-endian.
  const auto* bytes = reinterpret_cast<const uint8_t*>(&address.storage);
  return static_cast<uint16_t>(bytes[2] << 8 | bytes[3]);
}

}  // namespace

struct TcpServer::Impl {
  Impl(const TcpServerConfig& config_in, Pool& pool_in, TokenOf token_of_in, Answers answers_in)
      : config(config_in),
        pool(pool_in),
        token_of(std::move(token_of_in)),
        answers(std::move(answers_in)),
        listener(listen_on(config)),
        port(port_of(listener.fd())) {
    if (answers.follow) followers.emplace(*answers.follow, config);
    acceptor = named_thread("accept peers", [this] { accept_all(); });
  }

  ~Impl() { stop(); }

  void stop() {
    if (!acceptor.joinable()) return;
    ring(stop_event.get());
    acceptor.join();
    listener.close();
    std::list<Session> last;
    {
      MutexLock lock(mutex);
      for (Session& session : sessions) session.stream.cut();
      last.swap(sessions);
    }
    for (Session& session : last) {
      if (session.thread.joinable()) session.thread.join();
    }
    followers.reset();  // before the streams
    counters.channels.store(0);
  }

  struct Session {
    Session(Socket socket, const TcpServerConfig& config, TcpServerStats& counters)
        : stream(std::move(socket), config, counters) {}

    tcp::ServerStream stream;
    std::thread thread;
    std::atomic<bool> has_thread{true}, over{false};
    bool let_in = false;  // under the mutex
  };

  void accept_all() {
    pollfd waits[] = {{listener.fd(), POLLIN, 0}, {stop_event.get(), POLLIN, 0}};
    while (true) {
      if (::poll(waits, 2, -1) < 0) continue;  // EINTR
      if (waits[1].revents != 0) return;
      Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
        // Out of descriptors or memory. The connection stays in the backlog, so without a pause
        // poll() would return at once, again and again.
        counters.refused++;
        (void)::poll(&waits[1], 1, kAcceptRetryMs);
        continue;
      }
      reap();
      admit(std::move(socket));
    }
  }

  void reap() {
    MutexLock lock(mutex);
    for (auto it = sessions.begin(); it != sessions.end();) {
      const auto session = it++;
      if (session->has_thread) continue;
      if (session->thread.joinable()) session->thread.join();
      if (session->over) sessions.erase(session);
    }
  }

  void admit(Socket socket) {
    MutexLock lock(mutex);
    std::list<Session> fresh;
    Session& session = fresh.emplace_back(std::move(socket), config, counters);
    const std::string& host = session.stream.host();
    unsigned greeting = 0, of_host = 0;
    for (const Session& one : sessions) {
      if (one.let_in || one.over) continue;
      ++greeting;
      of_host += one.stream.host() == host;
    }
    if (of_host >= config.greeting_per_host_max || greeting >= config.greeting_max) {
      counters.refused++;
      counters.crowded += of_host >= config.greeting_per_host_max;
      say(config.notices, "tcp crowd",
          "refused a connection to data_port from " + host +
              ": too many connections without a hello (" + std::to_string(of_host) +
              " from that address, " + std::to_string(greeting) + " in total)");
      channel_of(session).turn_away();
      return;
    }
    sessions.splice(sessions.end(), fresh);
    counters.channels++;
    counters.accepted++;
    try {
      session.thread = named_thread("peer", [this, &session] {
        if (channel_of(session).serve([&] { return let_in(session); })) {
          followers->take(session.stream, [this, &session] { end(session); });
        } else {
          // Close now, before the session is reaped: this drops bytes that a stalled peer did not
          // take.
          session.stream.close();
          end(session);
        }
        session.has_thread = false;
      });
    } catch (const std::system_error&) {  // no more threads available
      counters.channels--;
      counters.accepted--;
      counters.refused++;
      sessions.pop_back();
    }
  }

  tcp::ServerChannel channel_of(Session& session) {
    return {session.stream, config, pool, token_of, answers, counters};
  }

  void end(Session& session) {
    counters.channels--;
    session.over = true;
  }

  bool let_in(Session& session) {
    MutexLock lock(mutex);
    unsigned all = 0, of_peer = 0;
    const std::string node_id = session.stream.node_id();
    for (const Session& one : sessions) {
      if (!one.let_in || one.over) continue;
      ++all;
      of_peer += one.stream.node_id() == node_id;
    }
    session.let_in = all < config.channels_max && of_peer < config.channels_per_peer_max;
    return session.let_in;
  }

  const TcpServerConfig config;
  Pool& pool;
  const TokenOf token_of;
  const Answers answers;
  Socket listener;
  EventFd stop_event;
  const uint16_t port;
  TcpServerStats counters;
  Mutex mutex;
  // A list, because the threads hold references to its elements.
  std::list<Session> sessions GUARDED_BY(mutex);
  std::optional<tcp::FollowServer> followers;
  std::thread acceptor;
};

TcpServer::TcpServer(const TcpServerConfig& config, Pool& pool, TokenOf token_of, Answers answers)
    : impl_(std::make_unique<Impl>(config, pool, std::move(token_of), std::move(answers))) {}
TcpServer::~TcpServer() = default;

void TcpServer::stop() { impl_->stop(); }

uint16_t TcpServer::port() const { return impl_->port; }

void TcpServer::drop_peer(const std::string& node_id, Incarnation incarnation) {
  MutexLock lock(impl_->mutex);
  for (Impl::Session& session : impl_->sessions) {
    if (session.stream.belongs_to(node_id, incarnation)) session.stream.cut();
  }
}

TcpServerStats TcpServer::stats() const { return impl_->counters; }

}  // namespace peercached
