#include "ipc/frame_stream.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/clock.h"

namespace peercached::ipc {
namespace {

constexpr int kQuietMs = 1000;
// The kernel's limit (SCM_MAX_FD). With less room here, recvmsg() would close the other files, and
// that may linger.
constexpr size_t kFilesPerMessageMax = 253;

bool wait_for(int fd, short events, int timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  for (;;) {
    pollfd entry = {fd, events, 0};
    const int rc = ::poll(&entry, 1, deadline.remaining_ms());
    if (rc > 0) return true;
    if (rc == 0 || errno != EINTR) return false;
  }
}

// Takes over all descriptors of the message first, so that none can leak on a later error.
void take_files(msghdr& message, std::vector<UniqueFd>& files) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      files.emplace_back(fd);
    }
  }
}

}  // namespace

void FrameStream::shrink_if_quiet() {
  if (buffer_.size() > FrameBuffer::kSmallBytes && !wait_for(socket_.get(), POLLIN, kQuietMs)) {
    buffer_.shrink();
  }
}

bool FrameStream::receive(Frame& frame, const Deadline* deadline) {
  // Data that has arrived is read even after the deadline: this process may have been stopped.
  if (deadline != nullptr && !wait_for(socket_.get(), POLLIN, deadline->remaining_ms())) {
    return false;
  }
  for (;;) {
    alignas(cmsghdr) char control[CMSG_SPACE(kFilesPerMessageMax * sizeof(int))];
    iovec place = {buffer_.data() + filled_, buffer_.size() - filled_};
    msghdr message = {};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    take_files(message, frame.files);
    if (frame.files.size() > 1 || (message.msg_flags & MSG_CTRUNC) != 0) {
      throw RequestError(ErrorCode::bad_frame,
                         "more than one file came with a request: pass one at a time");
    }
    filled_ += static_cast<size_t>(got);
    return true;
  }
}

bool FrameStream::read(Frame& frame, const Deadline* hello) {
  frame.header = {};
  frame.body = {};
  frame.files.clear();
  filled_ = 0;
  if (!buffer_.grow(FrameBuffer::kSmallBytes)) return false;
  shrink_if_quiet();
  if (!receive(frame, hello)) return false;
  Deadline rest = hello != nullptr ? *hello : Deadline::after_ms(kStallTimeoutMs);
  while (filled_ < sizeof(RequestHeader)) {
    if (!receive(frame, &rest)) return false;
  }
  std::memcpy(&frame.header, buffer_.data(), sizeof(RequestHeader));
  check_header(frame.header);
  if (hello != nullptr && frame.header.body_bytes > kHelloBodyBytesMax) {
    throw RequestError(ErrorCode::bad_frame,
                       std::to_string(frame.header.body_bytes) + " bytes before HELLO; " +
                           std::to_string(kHelloBodyBytesMax) + " are the limit");
  }
  if (hello == nullptr) {
    rest.at += std::chrono::milliseconds(frame.header.body_bytes / kSlowestBytesPerMs);
  }
  const size_t total = sizeof(RequestHeader) + frame.header.body_bytes;
  while (filled_ < total) {
    const size_t size = buffer_.size();
    if (filled_ == size && !buffer_.grow(std::min(total, size * 2))) {
      const size_t left = total - filled_;
      buffer_.shrink();  // makes room for other connections
      if (!skip(frame, left, rest)) return false;
      throw RequestError(ErrorCode::limit,
                         "no memory for a request of " + std::to_string(total) +
                             " bytes: the large requests of this user, or of all, have what there "
                             "is. Send smaller ones, or fewer at once");
    }
    if (!receive(frame, &rest)) return false;
  }
  if (filled_ > total) {
    throw RequestError(ErrorCode::bad_frame,
                       std::to_string(filled_ - total) +
                           " bytes follow the request: wait for its reply before the next");
  }
  frame.body = {buffer_.data() + sizeof(RequestHeader), frame.header.body_bytes};
  return true;
}

// Reads the rest of a frame and drops it.
bool FrameStream::skip(Frame& frame, size_t bytes, const Deadline& deadline) {
  for (size_t skipped = 0; skipped < bytes; skipped += filled_) {
    filled_ = 0;
    if (!receive(frame, &deadline)) return false;
  }
  return true;
}

bool FrameStream::wait_for_room() const {
  const Deadline deadline = Deadline::after_ms(kStallTimeoutMs);
  while (!deadline.passed() && Clock::now() < stop_by_.load()) {
    if (wait_for(socket_.get(), POLLOUT, kQuietMs)) return true;
  }
  return false;
}

bool FrameStream::write(const ReplyHeader& header, std::string_view body) {
  ReplyHeader head = header;
  iovec parts[2] = {{&head, sizeof(head)}, {const_cast<char*>(body.data()), body.size()}};
  iovec* next = parts;
  size_t parts_left = body.empty() ? 1 : 2;
  while (parts_left > 0) {
    msghdr message = {};
    message.msg_iov = next;
    message.msg_iovlen = parts_left;
    const ssize_t put = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN || !wait_for_room()) return false;
      continue;
    }
    auto sent = static_cast<size_t>(put);
    while (parts_left > 0 && sent >= next->iov_len) {
      sent -= next->iov_len;
      ++next;
      --parts_left;
    }
    if (parts_left > 0) {
      next->iov_base = static_cast<char*>(next->iov_base) + sent;
      next->iov_len -= sent;
    }
  }
  return true;
}

// The kernel takes as few bytes whole or not at all. Each takes about 700 bytes of its memory.
void FrameStream::write_if_room(const ReplyHeader& header) const {
  constexpr int kUnreadMax = 32 << 10;
  int unread = 0;
  if (::ioctl(socket_.get(), SIOCOUTQ, &unread) != 0 || unread > kUnreadMax) return;
  ::send(socket_.get(), &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool FrameStream::peer_has_left() const {
  pollfd end{socket_.get(), POLLRDHUP, 0};
  return ::poll(&end, 1, 0) > 0 && (end.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void FrameStream::stop() {
  stop_by_ = Clock::now() + std::chrono::milliseconds(kQuietMs);
  ::shutdown(socket_.get(), SHUT_RD);
}
void FrameStream::close_stream() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace peercached::ipc
