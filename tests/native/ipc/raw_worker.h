// A worker that can send any bytes, well formed or not.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/write_gate.h"
#include "ipc/unique_fd.h"
#include "ipc/wire.h"

namespace peercached {

using ipc::UniqueFd;

inline UniqueFd make_memfd(size_t bytes, unsigned flags = MFD_ALLOW_SEALING) {
  UniqueFd fd(::memfd_create("test", flags | MFD_CLOEXEC));
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) ADD_FAILURE() << "memfd";
  return fd;
}

// A memfd and its mapping in this process.
struct Memory {
  explicit Memory(size_t bytes_, unsigned flags = MFD_ALLOW_SEALING)
      : fd(make_memfd(bytes_, flags)), bytes(bytes_) {
    at =
        static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
  }
  ~Memory() { ::munmap(at, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  UniqueFd fd;
  size_t bytes;
  char* at;
};

struct Reply {
  ipc::ReplyHeader header;
  std::string body;
  ipc::ErrorCode error() const { return static_cast<ipc::ErrorCode>(header.error); }
};

struct Page {
  std::string key;
  uint32_t region = 0;
  uint64_t offset = 0;
  uint32_t length = 0;
};

template <typename T>
void append(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string pack_pages(const std::vector<Page>& pages, const std::string& parent = "") {
  std::string out;
  for (const auto& page : pages) append(out, static_cast<uint32_t>(page.key.size()));
  for (const auto& page : pages) append(out, page.region);
  for (const auto& page : pages) append(out, page.offset);
  for (const auto& page : pages) append(out, page.length);
  if (!parent.empty()) {
    append(out, static_cast<uint32_t>(parent.size()));
    out += parent;
  }
  for (const auto& page : pages) out += page.key;
  return out;
}

inline std::string pack_keys(const std::vector<std::string>& keys) {
  std::string out;
  for (const auto& key : keys) append(out, static_cast<uint32_t>(key.size()));
  for (const auto& key : keys) out += key;
  return out;
}

class RawWorker {
 public:
  explicit RawWorker(const std::string& path) : gate(kGatePageBytes) {
    socket.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    connected =
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }

  bool send_bytes(const std::string& bytes, const std::vector<int>& files = {}) {
    iovec place = {const_cast<char*>(bytes.data()), bytes.size()};
    msghdr message = {};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    if (!files.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
      cmsghdr* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
      std::memcpy(CMSG_DATA(part), files.data(), files.size() * sizeof(int));
    }
    const auto put = ::sendmsg(socket.get(), &message, MSG_NOSIGNAL);
    if (put < 0) return false;
    return static_cast<size_t>(put) == bytes.size() ||
           send_bytes(bytes.substr(static_cast<size_t>(put)));
  }

  std::string head(ipc::Op op, uint32_t body_bytes, uint32_t count = 0, uint16_t flags = 0) {
    ipc::RequestHeader header;
    header.body_bytes = body_bytes;
    header.op = static_cast<uint16_t>(op);
    header.flags = flags;
    header.request_id = ++request_id;
    header.count = count;
    header.deadline_ms = 5000;
    std::string out;
    append(out, header);
    return out;
  }

  // Empty if the daemon closed the connection.
  std::optional<Reply> receive() {
    Reply reply;
    if (!read_all(&reply.header, sizeof(reply.header))) return std::nullopt;
    reply.body.resize(reply.header.body_bytes);
    if (!read_all(reply.body.data(), reply.body.size())) return std::nullopt;
    return reply;
  }

  std::optional<Reply> ask(ipc::Op op, const std::string& body = "", uint32_t count = 0,
                           uint16_t flags = 0, const std::vector<int>& files = {}) {
    if (!send_bytes(head(op, static_cast<uint32_t>(body.size()), count, flags) + body, files)) {
      return std::nullopt;
    }
    auto reply = receive();
    if (reply) {
      EXPECT_EQ(reply->header.op, static_cast<uint16_t>(op) | ipc::kReplyBit);
      // A connection refused on arrival gets a reply without a request id.
      const bool at_door = reply->error() == ipc::ErrorCode::limit && reply->header.request_id == 0;
      EXPECT_EQ(reply->header.request_id, at_door ? 0 : request_id);
    }
    return reply;
  }

  std::optional<Reply> hello(const std::string& ns = "test",
                             const std::array<uint8_t, 16>& with = {}, uint32_t features = 0) {
    ipc::HelloHead hello_head;
    hello_head.features = features;
    hello_head.protocol_version = ipc::kProtocolVersion;
    std::memcpy(hello_head.token.data(), with.data(), with.size());
    hello_head.namespace_bytes = static_cast<uint32_t>(ns.size());
    hello_head.name_bytes = 4;
    std::string body;
    append(body, hello_head);
    body += ns + "name";
    auto reply = ask(ipc::Op::hello, body, 0, 0, {gate.fd.get()});
    if (reply && reply->error() == ipc::ErrorCode::none) {
      ipc::HelloReply answer;
      std::memcpy(&answer, reply->body.data(), sizeof(answer));
      std::memcpy(token.data(), answer.token.data(), token.size());
    }
    return reply;
  }

  // Returns the region's id, or 0 if refused.
  uint32_t share(const UniqueFd& fd, uint64_t bytes) {
    std::string body;
    append(body, bytes);
    last = ask(ipc::Op::register_region, body, 0, 0, {fd.get()});
    return last && last->error() == ipc::ErrorCode::none ? last->header.value : 0;
  }

  // Returns one status per page, or nothing if refused.
  std::string pages(ipc::Op op, const std::vector<Page>& list, const std::string& parent = "") {
    last = ask(op, pack_pages(list, parent), static_cast<uint32_t>(list.size()),
               parent.empty() ? 0 : ipc::kFlagParent);
    return last && last->error() == ipc::ErrorCode::none ? last->body : "";
  }

  // Whether a reply, or the end of the stream, can be read.
  bool answered() {
    pollfd wait = {socket.get(), POLLIN, 0};
    return ::poll(&wait, 1, 0) != 0;
  }

  bool closed_by_daemon() {
    pollfd wait = {socket.get(), POLLIN, 0};
    char byte;
    return ::poll(&wait, 1, 10'000) == 1 && ::recv(socket.get(), &byte, 1, 0) <= 0;
  }

  WriteGatePage& gate_page() { return *reinterpret_cast<WriteGatePage*>(gate.at); }

  UniqueFd socket;
  bool connected = false;
  Memory gate;
  uint32_t request_id = 0;
  std::array<uint8_t, 16> token = {};
  std::optional<Reply> last;

 private:
  bool read_all(void* at, size_t bytes) {
    auto* next = static_cast<char*>(at);
    while (bytes > 0) {
      const auto got = ::recv(socket.get(), next, bytes, 0);
      if (got <= 0) return false;
      next += got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }
};

}  // namespace peercached
