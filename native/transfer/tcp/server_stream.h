// The holder's end of one connection: bytes, frames received, the peer's name, and complaints about
// the peer. One thread at a time uses it; other threads only ask for the name and cut it.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/mutex.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/stream.h"
#include "transfer/tcp/tcp_server.h"

namespace peercached::tcp {

class ServerStream {
 public:
  enum class Got { all, closed, wrong, none };

  ServerStream(Socket socket, const TcpServerConfig& config, TcpServerStats& counters);

  const std::string& host() const { return host_; }  // of the other end
  void set_peer(const std::string& node_id, Incarnation incarnation);
  bool belongs_to(const std::string& node_id, Incarnation incarnation) const;
  std::string node_id() const;
  Incarnation incarnation() const;
  // Ends the connection soon. Any thread may call it.
  void cut() const;
  void close();

  Stream& bytes() { return stream_; }
  int fd() const { return stream_.fd(); }

  // Continues to receive a frame of these kinds; never blocks. `none`: more has to arrive. `all`:
  // kind() and body() are set until the next call. `wrong`: see wrong().
  Got receive(std::initializer_list<FrameKind> kinds, size_t body_bytes_max);
  bool in_frame() const { return have_ != 0 || in_body_; }  // a part of a frame is here
  bool has_more() const { return !unread_.empty() || stream_.has_more(); }
  FrameKind kind() const { return kind_; }
  std::span<const std::byte> body() const { return frame_; }
  const char* wrong() const { return wrong_; }

  // These count the peer's fault, and say it.
  void bad_frame() { counters_.bad_frames++; }
  void stalled(std::string_view what);
  // Its TLS key is used up, so it gets no further answer.
  bool is_spent() const;

 private:
  Stream stream_;
  const TcpServerConfig& config_;
  TcpServerStats& counters_;
  const std::string host_;

  // Guards what other threads use: the peer's name, and the end of stream_.
  mutable Mutex mutex_;
  std::string node_id_ GUARDED_BY(mutex_);
  Incarnation incarnation_ GUARDED_BY(mutex_) = 0;

  // Bytes that came with the last bytes asked for: a frame's body, and pipelined requests. So most
  // requests cost one system call to receive.
  std::array<std::byte, 2048> ahead_;
  std::span<const std::byte> unread_;  // of ahead_

  std::vector<std::byte> frame_;  // its header, then its body
  size_t have_ = 0;               // of frame_
  bool in_body_ = false;
  FrameKind kind_{};
  const char* wrong_ = nullptr;
};

}  // namespace peercached::tcp
