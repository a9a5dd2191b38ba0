// Reads and writes frames on one socket.
//
// Reads a small request with one system call. Grows its buffer only as bytes arrive, so that an
// announced length costs nothing. Returns the memory when the peer goes quiet. If there is no
// memory for a frame, it reads the frame to its end and drops it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "ipc/frame_buffer.h"
#include "ipc/request.h"
#include "ipc/unique_fd.h"

namespace peercached::ipc {

struct Frame {
  RequestHeader header;
  std::span<const std::byte> body;  // valid until the next read
  std::vector<UniqueFd> files;      // at most one
};

class FrameStream {
 public:
  // Timeout for the rest of a frame after its first byte, plus its body's bytes at
  // kSlowestBytesPerMs. Also limits each wait while writing a reply. A worker stopped in mid-frame
  // is disconnected, and reconnects.
  static constexpr int kStallTimeoutMs = 30'000;
  static constexpr uint32_t kSlowestBytesPerMs = 8 << 10;
  // Before HELLO the peer is not authorised, so it gets only small frames.
  static constexpr uint32_t kHelloBodyBytesMax = 4096;

  // `uid`: of the peer; its frames count against this user's share of `memory`.
  FrameStream(UniqueFd socket, FrameMemory& memory, uint32_t uid)
      : socket_(std::move(socket)), buffer_(memory, uid) {}
  ~FrameStream() { close_aside(std::move(socket_)); }

  // Blocks, without a timeout, until a whole frame is here. False: the peer is gone, or `stop` was
  // called. Throws RequestError: bad_frame, or limit if the next frame may still fit. Then
  // `frame.header` names the failed request.
  bool read(Frame& frame) { return read(frame, nullptr); }
  // Like read(), for a HELLO that must be complete by the deadline; false also when it is late.
  bool read_hello(Frame& frame, Deadline deadline) { return read(frame, &deadline); }
  // False: the peer does not read it.
  bool write(const ReplyHeader& header, std::string_view body);
  // Does not wait. If the peer has not read much of what it was sent, writes nothing: the reply
  // needs room, too.
  void write_if_room(const ReplyHeader& header) const;

  // The peer has closed its end, so nobody reads a reply.
  bool peer_has_left() const;
  // From any thread: the current read, or the next one, returns false. The reply to the current
  // request is still sent: an end of the stream must mean that no request is running. But the peer
  // has only kQuietMs to take it.
  void stop();
  // Ends the stream for the peer now, not when this object is destroyed.
  void close_stream();

  int fd() const { return socket_.get(); }

 private:
  bool read(Frame& frame, const Deadline* hello);
  bool receive(Frame& frame, const Deadline* deadline);
  bool skip(Frame& frame, size_t bytes, const Deadline& deadline);
  bool wait_for_room() const;
  void shrink_if_quiet();

  UniqueFd socket_;
  FrameBuffer buffer_;
  size_t filled_ = 0;
  std::atomic<TimePoint> stop_by_{TimePoint::max()};
};

}  // namespace peercached::ipc
