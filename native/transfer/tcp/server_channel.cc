#include "transfer/tcp/server_channel.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "transfer/tcp/hello_proof.h"

namespace peercached::tcp {
namespace {

// A slow peer must not hold pins for long. Beyond the stall timeout it must take an answer at this
// rate. Every network is faster.
constexpr uint64_t kSlowestBytesPerSecond = 8ull << 20;

// Unpins its pages, however the channel ends.
class Pins {
 public:
  Pins(Pool& pool, std::span<const PinnedPage> pages) : pool_(pool), pages_(pages) {}
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;
  ~Pins() { pool_.unpin(pages_); }

 private:
  Pool& pool_;
  const std::span<const PinnedPage> pages_;
};

// Copies the header of a pinned page. While a page is pinned, only its state can change: the page
// may be removed, though not reused. Then the reader rightly finds no committed header.
SlotHeader copy_of_header(std::byte* header) {
  constexpr size_t kBefore = offsetof(SlotHeader, state);
  constexpr size_t kAfter = kBefore + sizeof(SlotHeader::state);
  SlotHeader copy;
  auto* bytes = reinterpret_cast<std::byte*>(&copy);
  std::memcpy(bytes, header, kBefore);
  std::memcpy(bytes + kAfter, header + kAfter, sizeof copy - kAfter);
  auto* state = reinterpret_cast<uint32_t*>(header + kBefore);
  copy.state = std::atomic_ref<uint32_t>(*state).load(std::memory_order_acquire);
  return copy;
}

bool wait_for(short events, int fd, int timeout_ms) {
  pollfd wait{fd, events, 0};
  int n;
  do {
    n = ::poll(&wait, 1, timeout_ms);
  } while (n < 0 && errno == EINTR);
  return n > 0;
}

// Drops the first `bytes` of the data still to send.
std::span<iovec> advance(std::span<iovec> pieces, size_t bytes) {
  while (!pieces.empty() && bytes >= pieces.front().iov_len) {
    bytes -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty()) {
    iovec& first = pieces.front();
    first.iov_base = static_cast<std::byte*>(first.iov_base) + bytes;
    first.iov_len -= bytes;
  }
  return pieces;
}

}  // namespace

ServerChannel::ServerChannel(ServerStream& peer, const TcpServerConfig& config, Pool& pool,
                             const TcpServer::TokenOf& token_of, const TcpServer::Answers& answers,
                             TcpServerStats& counters)
    : peer_(peer),
      stream_(peer.bytes()),
      config_(config),
      pool_(pool),
      token_of_(token_of),
      answers_(answers),
      counters_(counters) {
  tune(stream_.fd());
  // Sending blocks in the kernel, which is the cheapest wait. This timeout bounds the wait, so that
  // send_answer() can check its deadline.
  timeval timeout{config.stall_timeout_ms / 1000, (config.stall_timeout_ms % 1000) * 1000};
  (void)setsockopt(stream_.fd(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (config.sealed) stream_.seal_as_holder(token_of);
}

bool ServerChannel::serve(const std::function<bool()>& let_in) {
  if (!greet(let_in)) return false;
  while (serve_request()) {
  }
  return follows_;
}

void ServerChannel::turn_away() {
  if (stream_.seal() != nullptr) return;  // a refusal would first need a handshake
  frame_.clear();
  append_refused(frame_, Refusal::full, "too many connections at once: try again later");
  (void)send(frame_);
}

void ServerChannel::no_hello(Got got) {
  counters_.bad_hellos++;
  if (got != Got::none) return;  // the peer closed it
  counters_.late_hellos++;
  say(config_.notices, "tcp hello",
      "closed a connection to data_port from " + peer_.host() + ": no complete hello within " +
          std::to_string(config_.hello_timeout_ms) + " ms");
}

// Finishes the TLS handshake. False: the connection must end.
bool ServerChannel::shake(Deadline deadline) {
  while (!stream_.shake()) {
    if (errno == EAGAIN) {
      if (!deadline.passed() && wait_for(POLLIN, stream_.fd(), deadline.remaining_ms())) continue;
      no_hello(Got::none);
      return false;
    }
    const bool refused = errno == EPROTO;
    no_hello(Got::closed);
    if (refused) {
      counters_.unauthorised += stream_.seal()->is_stranger();
      say(config_.notices, "tcp refused",
          "refused a connection to data_port from " + peer_.host() + ": " +
              stream_.error_text(EPROTO));
    }
    return false;
  }
  counters_.kernel_sealed += stream_.seal()->is_in_kernel();
  return true;
}

bool ServerChannel::greet(const std::function<bool()>& let_in) {
  const Deadline deadline = Deadline::after_ms(config_.hello_timeout_ms);
  if (stream_.seal() != nullptr && !shake(deadline)) return false;
  const Challenge challenge = fresh_challenge();
  frame_.clear();
  append_challenge(frame_, challenge);
  if (!send(frame_)) return false;
  const Got got = receive_frame({FrameKind::hello}, kHelloBodyBytesMax, deadline);
  if (got == Got::closed || got == Got::none) {
    no_hello(got);
    return false;
  }
  Hello hello;
  const char* wrong = got == Got::wrong ? peer_.wrong() : parse_hello(peer_.body(), hello);
  if (wrong != nullptr) return refuse(Refusal::bad_hello, wrong);
  if (hello.expected != config_.incarnation) {
    return refuse(Refusal::wrong_incarnation,
                  "this daemon is incarnation " + std::to_string(config_.incarnation) + ", not " +
                      std::to_string(hello.expected) + ": shake hands again");
  }
  // Set before the authorisation, so that drop_peer() cannot miss a channel that is just being
  // admitted. To cut a channel that is refused anyway does no harm.
  peer_.set_peer(hello.node_id, hello.incarnation);
  if (!is_proven(token_of_(hello.node_id, hello.incarnation), challenge, hello)) {
    counters_.unauthorised++;
    return refuse(Refusal::unauthorised, "it does not know the token of a handshake with node '" +
                                             hello.node_id + "', incarnation " +
                                             std::to_string(hello.incarnation) +
                                             ": shake hands again");
  }
  if (!let_in()) {
    counters_.refused++;
    counters_.crowded++;
    return refuse(Refusal::full, "node '" + hello.node_id + "' has " +
                                     std::to_string(config_.channels_per_peer_max) +
                                     " channels, or all peers have " +
                                     std::to_string(config_.channels_max) +
                                     ": the most that may be");
  }
  frame_.clear();
  append_hello_ok(frame_, config_.incarnation);
  return send(frame_);
}

bool ServerChannel::refuse(Refusal reason, std::string_view text) {
  if (reason != Refusal::full) counters_.bad_hellos++;
  say(config_.notices, "tcp refused",
      "refused a connection to data_port from " + peer_.host() + ": " + std::string(text));
  frame_.clear();
  append_refused(frame_, reason, text);
  (void)send(frame_);
  return false;
}

bool ServerChannel::serve_request() {
  if (peer_.is_spent() || !wait_for_request()) return false;
  // After its first byte, a frame must arrive within the stall timeout, or it is a bad frame.
  const Got got = receive_frame(
      {FrameKind::read, FrameKind::hold, FrameKind::lookup, FrameKind::push, FrameKind::follow},
      kRequestBodyBytesMax, Deadline::after_ms(config_.stall_timeout_ms));
  // A reader that closes in mid-frame has given up; the frame was not malformed.
  if (got == Got::closed) return false;
  if (got != Got::all) return bad_frame();
  switch (peer_.kind()) {
    case FrameKind::hold:
      return answer_hold();
    case FrameKind::lookup:
      return answer_lookup();
    case FrameKind::push:
      return answer_push();
    case FrameKind::follow:
      follows_ = answers_.follow != nullptr;
      return false;
    default:
      return answer_read();
  }
}

bool ServerChannel::bad_frame() {
  peer_.bad_frame();
  return false;
}

bool ServerChannel::answer_lookup() {
  LookupHead head;
  if (parse_lookup(peer_.body(), head, digests_) != nullptr) return bad_frame();
  located_.final = false;
  located_.holders.clear();
  located_.rows.clear();
  answers_.lookup(digests_, head.view_number, located_);
  frame_.clear();
  append_located(frame_, head.request, located_);
  return send_answer();
}

bool ServerChannel::answer_push() {
  PushHead head;
  if (parse_push(peer_.body(), head, rows_) != nullptr) return bad_frame();
  const FeedPart part{.rows = rows_, .from = head.from, .to = head.to};
  frame_.clear();
  append_pushed(frame_, head.request, answers_.push(peer_.incarnation(), part));
  return send_answer();
}

bool ServerChannel::answer_hold() {
  HoldHead head;
  if (parse_hold(peer_.body(), head, digests_) != nullptr) return bad_frame();
  held_.assign(digests_.size(), 0);
  answers_.hold(digests_, head.hold_ms, held_);
  frame_.clear();
  append_held(frame_, head.request, held_);
  return send_answer();
}

bool ServerChannel::answer_read() {
  ReadHead head;
  if (parse_read(peer_.body(), head, wanted_) != nullptr) return bad_frame();
  pages_.assign(wanted_.size(), {});
  if (answers_.may_read()) pool_.pin_records(wanted_, pages_);
  const Pins pins(pool_, pages_);
  statuses_.clear();
  uint64_t payload_bytes = 0;
  size_t found = 0;
  for (const PinnedPage& page : pages_) {
    statuses_.push_back(page ? PageStatus::ok : PageStatus::stale);
    payload_bytes += page.length;
    found += page ? 1 : 0;
  }
  counters_.stale += pages_.size() - found;
  frame_.clear();
  append_pages(frame_, head.request, statuses_, found * sizeof(SlotHeader) + payload_bytes);
  return send_answer(pages_, payload_bytes);
}

ServerChannel::Got ServerChannel::receive_frame(std::initializer_list<FrameKind> kinds,
                                                size_t body_bytes_max, Deadline deadline) {
  while (true) {
    const Got got = peer_.receive(kinds, body_bytes_max);
    if (got != Got::none || deadline.passed() ||
        !wait_for(POLLIN, stream_.fd(), deadline.remaining_ms())) {
      return got;
    }
  }
}

bool ServerChannel::wait_for_request() {
  if (peer_.has_more()) return true;
  // Each channel costs a thread, and there are many (peers x channels per peer). So bound the wait.
  return wait_for(POLLIN, stream_.fd(), config_.idle_timeout_ms);
}

bool ServerChannel::wait_for_room() {
  // Without TLS the kernel has already waited in send().
  return stream_.seal() != nullptr && wait_for(POLLOUT, stream_.fd(), config_.stall_timeout_ms);
}

bool ServerChannel::send(std::span<const std::byte> bytes) {
  // Only for greetings: they fit into any socket buffer. A peer that takes none is not worth a
  // wait.
  return stream_.send(bytes) == static_cast<ssize_t>(bytes.size());
}

bool ServerChannel::send_answer(std::span<const PinnedPage> pages, uint64_t payload_bytes) {
  std::array<SlotHeader, kPagesPerRequestMax> headers;
  std::array<iovec, 1 + 2 * kPagesPerRequestMax> pieces;
  static_assert(std::tuple_size_v<decltype(pieces)> <= IOV_MAX);
  pieces[0] = {frame_.data(), frame_.size()};
  size_t count = 1;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (!pages[i]) continue;
    headers[i] = copy_of_header(pages[i].header);
    pieces[count++] = {&headers[i], sizeof(SlotHeader)};
    pieces[count++] = {pages[i].payload(), pages[i].length};
  }
  std::span<iovec> left(pieces.data(), count);
  const Deadline deadline =
      Deadline::after_ms(config_.stall_timeout_ms +
                         static_cast<int64_t>(payload_bytes * 1000 / kSlowestBytesPerSecond));
  bool stalled = false;
  while (!left.empty()) {
    const ssize_t n = stream_.send(left);
    if (n >= 0) {
      left = advance(left, static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      stalled = !wait_for_room();
    } else if (errno != EINTR) {
      return false;
    }
    if (stalled || (!left.empty() && deadline.passed())) {
      peer_.stalled("pages");
      return false;
    }
  }
  counters_.pages += (count - 1) / 2;
  counters_.bytes += payload_bytes;
  return true;
}

}  // namespace peercached::tcp
