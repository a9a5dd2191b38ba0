#include "transfer/tcp/server_stream.h"

#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace peercached::tcp {
namespace {

std::string host_at(int fd) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  char host[NI_MAXHOST] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host, sizeof host, nullptr, 0,
                  NI_NUMERICHOST) != 0) {
    return "an address that is gone";
  }
  return host;
}

}  // namespace

ServerStream::ServerStream(Socket socket, const TcpServerConfig& config, TcpServerStats& counters)
    : stream_(std::move(socket)),
      config_(config),
      counters_(counters),
      host_(host_at(stream_.fd())) {}

void ServerStream::set_peer(const std::string& node_id, Incarnation incarnation) {
  MutexLock lock(mutex_);
  node_id_ = node_id;
  incarnation_ = incarnation;
}

bool ServerStream::belongs_to(const std::string& node_id, Incarnation incarnation) const {
  MutexLock lock(mutex_);
  return incarnation_ == incarnation && node_id_ == node_id;
}

std::string ServerStream::node_id() const {
  MutexLock lock(mutex_);
  return node_id_;
}

Incarnation ServerStream::incarnation() const {
  MutexLock lock(mutex_);
  return incarnation_;
}

void ServerStream::cut() const {
  MutexLock lock(mutex_);
  stream_.shut();
}

void ServerStream::close() {
  MutexLock lock(mutex_);
  stream_.close();
}

ServerStream::Got ServerStream::receive(std::initializer_list<FrameKind> kinds,
                                        size_t body_bytes_max) {
  if (!in_frame()) frame_.resize(sizeof(FrameHeader));
  while (true) {
    if (have_ == frame_.size()) {
      have_ = 0;
      in_body_ = !in_body_;
      if (!in_body_) return Got::all;
      FrameHeader header;
      wrong_ = parse_header(frame_, kinds, body_bytes_max, header);
      if (wrong_ != nullptr) return Got::wrong;
      kind_ = static_cast<FrameKind>(header.kind);
      frame_.resize(header.body_bytes);
    } else if (!unread_.empty()) {
      const size_t some = std::min(frame_.size() - have_, unread_.size());
      std::copy_n(unread_.data(), some, frame_.data() + have_);
      unread_ = unread_.subspan(some);
      have_ += some;
    } else {
      const size_t wanted = frame_.size() - have_;
      const std::array<iovec, 2> places{
          {{frame_.data() + have_, wanted}, {ahead_.data(), ahead_.size()}}};
      const ssize_t n = stream_.receive(places);
      if (n > 0) {
        have_ += std::min(wanted, static_cast<size_t>(n));
        unread_ = std::span(ahead_).first(static_cast<size_t>(n) - std::min(wanted, size_t(n)));
      } else if (n < 0 && errno == EAGAIN) {
        if (!stream_.has_more()) return Got::none;
      } else if (n == 0 || errno != EINTR) {
        if (n < 0 && errno == EPROTO) {
          bad_frame();
          say(config_.notices, "tcp seal", "cut off " + host_ + ": " + stream_.error_text(EPROTO));
        }
        return Got::closed;
      }
    }
  }
}

void ServerStream::stalled(std::string_view what) {
  counters_.stalls++;
  say(config_.notices, "tcp stall",
      "closed a connection to data_port from " + host_ + ": it does not receive the " +
          std::string(what) + " that it requested");
}

bool ServerStream::is_spent() const {
  if (stream_.seal() == nullptr || !stream_.seal()->is_spent()) return false;
  say(config_.notices, "tcp key spent",
      "ended a connection of node '" + node_id() +
          "' to data_port: its TLS key is used up. Readers open a new "
          "connection long before that; is the node of an older version?");
  return true;
}

}  // namespace peercached::tcp
