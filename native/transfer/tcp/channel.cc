#include "transfer/tcp/channel.h"

#include <poll.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "common/error_text.h"
#include "transfer/tcp/hello_proof.h"

namespace peercached::tcp {

Dial::Dial(const TcpEngineConfig& config) : connect_timeout_ms(config.connect_timeout_ms) {
  hello.node_id = config.node_id;
  hello.incarnation = config.incarnation;
  std::string wrong;
  if (!config.bind_host.empty() && !resolve(config.bind_host, 0, source, wrong)) {
    throw std::invalid_argument("transfer source address: " + wrong);
  }
}

Dial Dial::to(const PeerEndpoint& endpoint) const {
  if (endpoint.token.size() != kTokenBytes) {
    throw std::invalid_argument("peer token has " + std::to_string(endpoint.token.size()) +
                                " bytes, not " + std::to_string(kTokenBytes));
  }
  Dial dial = *this;
  dial.hello.expected = endpoint.incarnation;
  dial.token = endpoint.token;
  dial.sealed = endpoint.sealed;
  (void)resolve(endpoint.host, endpoint.port, dial.address, dial.unresolved);
  return dial;
}

Channel::Channel(const Dial& dial)
    : hello_(dial.hello),
      token_(dial.token),
      sealed_(dial.sealed),
      connect_timeout_ms_(dial.connect_timeout_ms),
      greeted_by_(Deadline::after_ms(dial.connect_timeout_ms).at) {
  start_connect(dial);
}

void Channel::start_connect(const Dial& dial) {
  if (dial.address.bytes == 0) return fail(dial.unresolved);
  Socket socket(
      ::socket(dial.address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail("cannot make a socket: " + error_text(errno));
  tune(socket.fd());
  stream_ = Stream(std::move(socket));
  if (dial.source.bytes != 0 && ::bind(stream_.fd(), dial.source.get(), dial.source.bytes) != 0) {
    return fail("cannot bind the source address: " + error_text(errno));
  }
  int rc;
  do {
    rc = ::connect(stream_.fd(), dial.address.get(), dial.address.bytes);
  } while (rc != 0 && errno == EINTR);
  if (rc == 0) return connected();
  if (errno != EINPROGRESS) fail("cannot connect: " + error_text(errno));
}

short Channel::poll_events() const {
  if (state_ == State::connecting) return POLLOUT;
  return unsent_.empty() ? POLLIN : POLLIN | POLLOUT;
}

TimePoint Channel::greeted_by() const {
  return state_ == State::ready ? TimePoint::max() : greeted_by_;
}

bool Channel::flush() {
  while (unsent_from_ < unsent_.size()) {
    const ssize_t n = stream_.send(std::span<const std::byte>(unsent_).subspan(unsent_from_));
    if (n >= 0) {
      unsent_from_ += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  unsent_.clear();
  unsent_from_ = 0;
  return true;
}

void Channel::proceed() {
  if (state_ == State::connecting) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(stream_.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) return fail("cannot connect: " + error_text(error));
    connected();
  } else if (state_ == State::greeting) {
    receive_reply();
  }
}

void Channel::catch_up() {
  while (state_ == State::connecting || state_ == State::greeting) {
    pollfd now{stream_.fd(), poll_events(), 0};
    const State before = state_;
    if (::poll(&now, 1, 0) <= 0) break;
    proceed();
    if (state_ == before) break;
  }
  check_time(Clock::now());
}

void Channel::check_time(TimePoint now) {
  if (state_ == State::broken || now < greeted_by()) return;
  fail((state_ == State::connecting ? "no connection within " : "no answer to hello within ") +
       std::to_string(connect_timeout_ms_) + " ms");
}

void Channel::connected() {
  state_ = State::greeting;
  reply_.resize(sizeof(FrameHeader));
  if (!sealed_) return;
  stream_.seal_as_reader(hello_, token_);
  receive_reply();  // in TLS the client speaks first
}

void Channel::receive_reply() {
  while (state_ == State::greeting) {
    const ssize_t n = stream_.receive(reply_.data() + reply_have_, reply_.size() - reply_have_);
    if (n == 0) return fail("closed during hello");
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      Trouble trouble("broken during hello: " + stream_.error_text(errno));
      trouble.token_unknown = stream_.token_unknown();
      return fail(std::move(trouble));
    }
    reply_have_ += static_cast<size_t>(n);
    if (reply_have_ == reply_.size()) read_reply();
  }
}

// Called once the header is complete, and again once the body is.
void Channel::read_reply() {
  FrameHeader header;
  const FrameKind wanted = challenged_ ? FrameKind::hello_ok : FrameKind::challenge;
  const char* wrong =
      parse_header(reply_, {wanted, FrameKind::refused}, kHelloReplyBodyBytesMax, header);
  if (wrong != nullptr) return fail(std::string("answered hello with a bad frame: ") + wrong);
  const size_t whole_bytes = sizeof(FrameHeader) + header.body_bytes;
  if (reply_.size() < whole_bytes) {
    reply_.resize(whole_bytes);
    return;
  }
  const auto kind = static_cast<FrameKind>(header.kind);
  const std::vector<std::byte> frame = std::exchange(reply_, {});
  const auto body = std::span(frame).subspan(sizeof(FrameHeader));
  if (kind == FrameKind::challenge) {
    take_challenge(body);
  } else {
    take_reply(kind, body);
  }
}

void Channel::take_challenge(std::span<const std::byte> body) {
  Challenge challenge;
  const char* wrong = parse_challenge(body, challenge);
  if (wrong != nullptr) return fail(std::string("answered hello with a bad frame: ") + wrong);
  challenged_ = true;
  hello_.proof = prove(token_, challenge, hello_);
  std::vector<std::byte> frame;
  append_hello(frame, hello_);
  // A few hundred bytes always fit into an empty socket buffer. An error does not end the channel
  // here: a refusal ("full") may have come before our hello.
  (void)stream_.send(frame);
  reply_.resize(sizeof(FrameHeader));
  reply_have_ = 0;
}

void Channel::take_reply(FrameKind kind, std::span<const std::byte> body) {
  HelloReply reply;
  const char* wrong = parse_hello_reply(kind, body, reply);
  if (wrong != nullptr) return fail(std::string("answered hello with a bad frame: ") + wrong);
  if (!reply.accepted) {
    Trouble trouble("refused: " + reply.text);
    const auto reason = static_cast<Refusal>(reply.reason);
    trouble.token_unknown = reason == Refusal::unauthorised || reason == Refusal::wrong_incarnation;
    return fail(std::move(trouble));
  }
  if (reply.incarnation != hello_.expected) return fail("is another incarnation than expected");
  state_ = State::ready;
}

void Channel::fail(Trouble trouble) {
  state_ = State::broken;
  trouble_ = std::move(trouble);
  stream_.shut();
}

}  // namespace peercached::tcp
