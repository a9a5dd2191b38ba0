// Two ends that follow a test's script, byte by byte: a holder for the engine, and a reader for the
// server.
#pragma once

#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <functional>
#include <future>

#include "transfer/tcp/frames.h"
#include "transfer/tcp/hello_proof.h"
#include "transfer/tcp/socket.h"
#include "transfer/tcp_fixture.h"

namespace peercached::testing {

// A connected socket with blocking transfers of whole buffers; false if the other end is gone, or
// silent for 30 s.
class Wire {
 public:
  explicit Wire(tcp::Socket socket) : socket_(std::move(socket)) {
    const timeval wait{30, 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  }

  bool send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  bool receive(std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::recv(socket_.fd(), bytes.data(), bytes.size(), 0);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  // Returns one frame, or nothing at the end of the connection.
  std::vector<std::byte> receive_frame() const {
    std::vector<std::byte> frame(sizeof(tcp::FrameHeader));
    if (!receive(frame)) return {};
    tcp::FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof header);
    frame.resize(sizeof header + header.body_bytes);
    if (!receive(std::span(frame).subspan(sizeof header))) return {};
    return frame;
  }
  // Waits for the end of the connection and drops all earlier bytes.
  bool ends() const {
    std::byte sink[4096];
    ssize_t n;
    do {
      pollfd wait{socket_.fd(), POLLIN, 0};
      if (::poll(&wait, 1, 20'000) <= 0) return false;
      n = ::recv(socket_.fd(), sink, sizeof sink, 0);
    } while (n > 0);
    return true;
  }
  // Resets the connection at the other end.
  void reset() {
    const linger at_once{1, 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket_.close();
  }
  int fd() const { return socket_.fd(); }

 private:
  tcp::Socket socket_;
};

struct Request {
  tcp::ReadHead head;
  std::vector<PageWanted> pages;
};

inline std::span<const std::byte> body_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(sizeof(tcp::FrameHeader));
}

// A holder that runs `script` after the hello of each connection, on its own thread.
class ScriptedHolder {
 public:
  explicit ScriptedHolder(std::function<void(Wire&, int connection)> script)
      : script_(std::move(script)) {
    tcp::Address address;
    std::string wrong;
    EXPECT_TRUE(tcp::resolve("127.0.0.1", 0, address, wrong));
    listener_ = tcp::Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listener_.fd(), address.get(), address.bytes), 0);
    EXPECT_EQ(::listen(listener_.fd(), 16), 0);
    EXPECT_EQ(
        getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes),
        0);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&address.storage);
    port_ = static_cast<uint16_t>(bytes[2] << 8 | bytes[3]);
    acceptor_ = std::thread([this] {
      for (int connection = 0;; ++connection) {
        tcp::Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!socket) return;
        std::lock_guard lock(mutex_);
        threads_.emplace_back([this, connection, wire = Wire(std::move(socket))]() mutable {
          script_(wire, connection);
        });
      }
    });
  }
  ~ScriptedHolder() {
    listener_.shut();
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }
  PeerEndpoint endpoint() const { return {"127.0.0.1", port_, kToken, kHolderIncarnation}; }

  static bool greet(const Wire& wire) {
    std::vector<std::byte> challenge, welcome;
    tcp::append_challenge(challenge, {});
    if (!wire.send(challenge) || wire.receive_frame().empty()) return false;
    tcp::append_hello_ok(welcome, kHolderIncarnation);
    return wire.send(welcome);
  }
  static bool receive_request(const Wire& wire, Request& request) {
    const std::vector<std::byte> frame = wire.receive_frame();
    if (frame.empty()) return false;
    EXPECT_EQ(tcp::parse_read(body_of(frame), request.head, request.pages), nullptr);
    return true;
  }
  // The correct answer: all pages ok, where page i of the request has number `first + i`.
  static std::vector<std::byte> answer(const Request& request, uint64_t first) {
    std::vector<std::byte> out;
    uint64_t following_bytes = 0;
    for (const auto& page : request.pages) following_bytes += sizeof(SlotHeader) + page.length;
    tcp::append_pages(out, request.head.request, std::vector(request.pages.size(), PageStatus::ok),
                      following_bytes);
    for (size_t i = 0; i < request.pages.size(); ++i) {
      const PageWanted& page = request.pages[i];
      std::vector<std::byte> payload(page.length);
      fill_page(payload.data(), payload.size(), first + i);
      SlotHeader header;
      header.digest = page.digest;
      header.incarnation = kHolderIncarnation;
      header.generation = page.generation;
      header.length = page.length;
      header.checksum = checksum(payload.data(), payload.size());
      header.state = kSlotCommitted;
      header.version = kSlotVersion;
      seal(header);
      const auto* bytes = reinterpret_cast<const std::byte*>(&header);
      out.insert(out.end(), bytes, bytes + sizeof header);
      out.insert(out.end(), payload.begin(), payload.end());
    }
    return out;
  }

 private:
  const std::function<void(Wire&, int)> script_;
  tcp::Socket listener_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// Greets, and answers the first frame with `answer`, whatever it asked for.
inline ScriptedHolder answering_holder(const std::vector<std::byte>& answer = {}) {
  return ScriptedHolder([=](Wire& wire, int) {
    if (!ScriptedHolder::greet(wire)) return;
    wire.receive_frame();
    wire.send(answer);
    wire.ends();
  });
}

inline RecordRow made_up_record(uint64_t number, uint32_t length) {
  RecordRow row;
  row.digest = digest_of_page(number);
  row.offset = number * 65536;
  row.generation = number + 1;
  row.length = length;
  return row;
}

inline Wire connect_to(uint16_t port) {
  tcp::Address address;
  std::string wrong;
  EXPECT_TRUE(tcp::resolve("127.0.0.1", port, address, wrong));
  tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), address.get(), address.bytes), 0);
  return Wire(std::move(socket));
}

// The hello of a reader, with the proof for this connection's challenge.
inline std::vector<std::byte> hello_frame(
    const Wire& wire, const std::string& token = kToken,
    tcp::Hello hello = {"reader", kReaderIncarnation, kHolderIncarnation, {}}) {
  const std::vector<std::byte> challenged = wire.receive_frame();
  tcp::Challenge challenge{};
  EXPECT_FALSE(challenged.empty());
  if (!challenged.empty()) {
    EXPECT_EQ(tcp::parse_challenge(body_of(challenged), challenge), nullptr);
  }
  hello.proof = tcp::prove(token, challenge, hello);
  std::vector<std::byte> frame;
  tcp::append_hello(frame, hello);
  return frame;
}

inline Wire connect_and_greet(const Holder& holder) {
  Wire wire = connect_to(holder.server->port());
  EXPECT_TRUE(wire.send(hello_frame(wire)));
  const std::vector<std::byte> reply = wire.receive_frame();
  tcp::HelloReply parsed;
  EXPECT_EQ(tcp::parse_hello_reply(tcp::FrameKind::hello_ok, body_of(reply), parsed), nullptr);
  return wire;
}

}  // namespace peercached::testing
