// Frames in and out of one socket.
//
// Takes a small request in one system call, grows its buffer only as bytes really arrive (an
// announced length costs nothing), and gives the memory back when the peer goes quiet. A frame for
// which there is no memory is read to its end, and forgotten.
#pragma once

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
  // Once the first byte of a frame is here the rest must come within this time, and what a slow
  // copy of a large body may need on top; a reply must be taken within it too. A worker stopped in
  // mid-frame is cut off: it reconnects.
  static constexpr int kStallTimeoutMs = 30'000;
  static constexpr uint32_t kSlowestBytesPerMs = 8 << 10;
  // Before its HELLO a connection is anybody's.
  static constexpr uint32_t kHelloBodyBytesMax = 4096;

  // `uid`: of the peer, whose share of `memory` its frames take.
  FrameStream(UniqueFd socket, FrameMemory& memory, uint32_t uid)
      : socket_(std::move(socket)), buffer_(memory, uid) {}

  // Blocks, without a timer, until a whole frame is here. False: the peer is gone, or `stop`
  // was called. Throws RequestError: bad_frame; or limit, where the next frame may fit.
  // `frame.header` then says whose fault it was.
  bool read(Frame& frame) { return read(frame, nullptr); }
  // The frame must be a HELLO's, and whole by then. False as above, and when it is late.
  bool read_hello(Frame& frame, Deadline deadline) { return read(frame, &deadline); }
  // False: the peer does not take it.
  bool write(const ReplyHeader& header, std::string_view body);

  // From any thread: the read in progress, or the next one, returns false. A reply to the
  // request being worked on still goes out: only silence may look like an end to the client.
  void stop();
  // The peer sees the end of the stream now, not when this object dies.
  void close_stream();

  int fd() const { return socket_.get(); }

 private:
  bool read(Frame& frame, const Deadline* hello);
  bool receive(Frame& frame, const Deadline* deadline);
  bool skip(Frame& frame, size_t bytes, const Deadline& deadline);
  void shrink_if_quiet();

  UniqueFd socket_;
  FrameBuffer buffer_;
  size_t filled_ = 0;
};

}  // namespace peercached::ipc
