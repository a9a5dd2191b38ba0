#include "client/connection.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>

#include "common/error_text.h"

namespace peercached::client {
namespace {

using ipc::ErrorCode;
using ipc::Op;
using ipc::ReplyHeader;
using ipc::RequestHeader;

// Added to the daemon's deadline, because its reply may be on its way.
constexpr auto kGrace = std::chrono::milliseconds(100);
// The time for a daemon in another container to end, once its stream has ended. We can only see the
// stream.
constexpr auto kUnseenEnd = std::chrono::seconds(1);
constexpr size_t kReceiveBytes = 16 * 1024;

std::set<Connection*>& all_connections() {
  static auto* all = new std::set<Connection*>;  // never freed: connections may outlive statics
  return *all;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

int open_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// The start of a process, in ticks since boot; 0: there is no such process. Nothing: it is not
// known, for example because this process has no descriptor left.
std::optional<uint64_t> start_of_process(pid_t pid) {
  char text[1024];
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? std::optional<uint64_t>(0) : std::nullopt;
  const ssize_t got = ::read(fd, text, sizeof(text) - 1);
  const bool is_gone = got < 0 && errno == ESRCH;
  ::close(fd);
  if (got <= 0) return is_gone ? std::optional<uint64_t>(0) : std::nullopt;
  text[got] = 0;
  // Field 22. Field 2 is a name in brackets, which may hold anything. Field 3, behind it, is Z for
  // a process that has ended and was not waited for.
  const char* at = std::strrchr(text, ')');
  if (at != nullptr && at[1] != 0 && (at[2] == 'Z' || at[2] == 'X')) return 0;
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  if (at == nullptr) return std::nullopt;
  return std::strtoull(at, nullptr, 10);
}

// Whether all threads of that process are gone and all its files are closed.
bool has_ended(pid_t pid, uint64_t started) {
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno == ESRCH) return true;
  const std::optional<uint64_t> now = start_of_process(pid);
  if (fd < 0) return now && *now != started;  // the kernel has no such call, or refuses it
  pollfd end{fd, POLLIN, 0};
  const bool ended = ::poll(&end, 1, 0) == 1;
  ::close(fd);
  return ended || (now && *now != 0 && *now != started);
}

// The longest body of a reply to this request. A longer one is not believed.
size_t reply_bytes_max(uint16_t op, uint32_t count) {
  constexpr size_t kSentences = 64 * 1024;
  constexpr size_t kStatistics = 16 << 20;
  switch (static_cast<Op>(op)) {
    case Op::stats:
    case Op::hint:
      return kStatistics;
    case Op::exists:
      return size_t{13} * count + kSentences;  // lengths, forecasts and `cold`
    case Op::set:
    case Op::get:
    case Op::remove:
    case Op::pin:
      return count + kSentences;
    default:
      return kSentences;
  }
}

}  // namespace

Connection::Connection(const std::string& path, const Token& token, const std::string& ns,
                       const std::string& name)
    : pid_(::getpid()), reply_(kReceiveBytes), socket_(open_socket(), "a socket") {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw std::system_error(ENAMETOOLONG, std::generic_category(), path);
  }
  path.copy(address.sun_path, path.size());
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket_.get(), to, sizeof(address)) != 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  place_ = place_of(path);
  ucred peer = {};
  socklen_t peer_bytes = sizeof(peer);
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0) {
    daemon_ = peer.pid;
    daemon_started_ = daemon_ > 0 ? start_of_process(daemon_).value_or(0) : 0;
  }
  ipc::HelloHead head;
  head.protocol_version = ipc::kProtocolVersion;
  head.features = ipc::kFeatures;
  head.token = token;
  head.namespace_bytes = static_cast<uint32_t>(ns.size());
  head.name_bytes = static_cast<uint32_t>(name.size());
  // HELLO fits into a new socket.
  send({.op = Op::hello,
        .body = {bytes_of(head), bytes_of(ns), bytes_of(name)},
        .file = gate_.file()},
       Clock::now(), nullptr);
  gate_.close_file();
  all_connections().insert(this);
}

FileIdentity Connection::place_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

Connection::~Connection() { all_connections().erase(this); }

void Connection::abandon_all() {
  for (Connection* connection : all_connections()) {
    connection->state_ = State::ended;
    connection->socket_.close();
  }
}

Answer Connection::lose(std::string why) {
  state_ = State::ended;
  return {.outcome = Outcome::lost, .body = std::move(why)};
}

Answer Connection::ask(const Frame& frame, TimePoint end, Waits& waits) {
  if (state_ != State::idle) return lose("the connection has ended");
  Answer sent = send(frame, end, &waits);
  if (sent.outcome != Outcome::reply) return sent;
  return receive(end + kGrace, waits);
}

Answer Connection::send(const Frame& frame, TimePoint end, Waits* waits) {
  RequestHeader header;
  size_t body_bytes = 0;
  for (const auto& part : frame.body) body_bytes += part.size();
  header.body_bytes = static_cast<uint32_t>(body_bytes);
  header.op = op_ = static_cast<uint16_t>(frame.op);
  count_ = frame.count;
  header.flags = frame.flags;
  header.request_id = ++request_id_;
  header.count = frame.count;
  header.took = frame.took;
  // Never 0: the daemon would have no time at all.
  const TimePoint answer_by = std::min(end, frame.answer_by);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(answer_by - Clock::now()).count();
  header.deadline_ms = static_cast<uint32_t>(std::clamp<int64_t>(left, 1, 3'600'000));

  std::vector<iovec> pieces;
  const auto add = [&pieces](std::span<const std::byte> part) {
    if (!part.empty()) pieces.push_back({const_cast<std::byte*>(part.data()), part.size()});
  };
  add(bytes_of(header));
  for (const auto& part : frame.body) add(part);

  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  if (frame.file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &frame.file, sizeof(int));
  }

  state_ = State::asking;
  told_of_stages_ = false;
  received_ = 0;
  size_t at = 0;
  while (at < pieces.size()) {
    const int fd = socket_.get();
    if (fd < 0) return lose("the program has closed the connection's descriptor");
    message.msg_iov = &pieces[at];
    message.msg_iovlen = std::min<size_t>(pieces.size() - at, 64);
    ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (waits == nullptr || !waits->ready(fd, POLLOUT, end)) return {.outcome = Outcome::late};
      if (state_ != State::asking) return lose("the process has forked");
      continue;
    }
    // A daemon that refuses a connection sends the reason and closes it. The reason can still be
    // read.
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) break;
    if (sent < 0) return lose(error_text(errno));
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    auto left_bytes = static_cast<size_t>(sent);
    while (at < pieces.size() && left_bytes >= pieces[at].iov_len) {
      left_bytes -= pieces[at++].iov_len;
    }
    if (left_bytes > 0) {
      pieces[at].iov_base = static_cast<std::byte*>(pieces[at].iov_base) + left_bytes;
      pieces[at].iov_len -= left_bytes;
    }
  }
  return {.outcome = Outcome::reply};
}

Answer Connection::receive(TimePoint until, Waits& waits) {
  if (state_ != State::asking) return lose("the connection has ended");
  ReplyHeader header;
  while (true) {
    if (received_ >= sizeof(header)) {
      std::memcpy(&header, reply_.data(), sizeof(header));
      if (header.body_bytes > reply_bytes_max(op_, count_)) {
        return lose("the daemon answered something else than was asked");
      }
      if (tells_of_stage(header)) {
        received_ -= sizeof(header);
        std::memmove(reply_.data(), reply_.data() + sizeof(header), received_);
        told_of_stages_ = true;
        waits.landed(header.value);
        if (state_ != State::asking) return lose("the process has forked");
        continue;
      }
      if (received_ >= sizeof(header) + size_t{header.body_bytes}) break;
      reply_.resize(std::max(reply_.size(), sizeof(header) + size_t{header.body_bytes} + 1));
    }
    const int fd = socket_.get();
    if (fd < 0) return lose("the program has closed the connection's descriptor");
    // Wait first: as a rule the reply is not there yet.
    if (!waits.ready(fd, POLLIN, until)) return {.outcome = Outcome::late};
    if (state_ != State::asking) return lose("the process has forked");
    const ssize_t got =
        ::recv(fd, reply_.data() + received_, reply_.size() - received_, MSG_DONTWAIT);
    const int error = errno;
    received_ += static_cast<size_t>(std::max<ssize_t>(got, 0));
    if (got > 0 || (got < 0 && (error == EINTR || error == EAGAIN || error == EWOULDBLOCK))) {
      continue;
    }
    if (got == 0 || error == ECONNRESET) {
      return lose("the daemon closed the connection");
    }
    return lose(error_text(error));
  }
  const auto error = static_cast<ErrorCode>(header.error);
  const bool of_hello = header.op == (static_cast<uint16_t>(Op::hello) | ipc::kReplyBit);
  const bool before_any = error != ErrorCode::none && header.request_id == 0 && of_hello;
  if (!before_any && (header.request_id != request_id_ || header.op != (op_ | ipc::kReplyBit) ||
                      received_ != sizeof(header) + size_t{header.body_bytes})) {
    return lose("the daemon answered something else than was asked");
  }
  Answer answer{Outcome::reply, error, header.value,
                std::string(reply_.data() + sizeof(header), header.body_bytes)};
  if (reply_.size() > kReceiveBytes) reply_ = std::vector<char>(kReceiveBytes);
  state_ = State::idle;
  if (of_hello && error == ErrorCode::none) take_hello(answer.body);
  if (error != ErrorCode::none) {
    answer.outcome = Outcome::refused;
    if (before_any || ipc::closes_connection(error)) state_ = State::ended;
  }
  return answer;
}

bool Connection::tells_of_stage(const ReplyHeader& header) const {
  return header.op == (op_ | ipc::kReplyBit | ipc::kStageBit) && header.body_bytes == 0 &&
         header.request_id == request_id_;
}

// An older daemon names no features there.
void Connection::take_hello(const std::string& answer) {
  constexpr size_t kVersionBytesMax = 64;  // it goes into sentences
  ipc::HelloReply reply;
  if (answer.size() < sizeof(reply)) return;
  std::memcpy(&reply, answer.data(), sizeof(reply));
  token_ = reply.token;
  daemon_version_ =
      answer.substr(sizeof(reply), std::min<size_t>(reply.version_bytes, kVersionBytesMax));
  const size_t at = sizeof(reply) + size_t{reply.version_bytes};
  if (answer.size() < at + sizeof(features_)) return;
  std::memcpy(&features_, answer.data() + at, sizeof(features_));
}

void Connection::give_up() {
  // A forked child shares the gate with its parent. The parent's request goes on.
  if (pid_ != ::getpid()) return;
  gate_.fence();
  given_up_ = true;
  state_ = State::ended;
}

bool Connection::silent() const {
  if (!given_up_ || gate_.silent()) return true;
  // The daemon hangs in the middle of a write, or it has died there. The end of the stream does not
  // tell: the kernel may close the socket before the devices that write for the daemon.
  if (daemon_started_ != 0) return has_ended(daemon_, daemon_started_);
  const int fd = socket_.get();
  pollfd end{fd, 0, 0};
  if (fd < 0 || ::poll(&end, 1, 0) != 1 || (end.revents & POLLHUP) == 0) return false;
  if (hung_up_at_ == TimePoint{}) hung_up_at_ = Clock::now();
  return Clock::now() - hung_up_at_ >= kUnseenEnd;
}

}  // namespace peercached::client
