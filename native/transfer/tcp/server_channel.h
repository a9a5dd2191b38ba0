// One connection of a reader, from hello to end, on its own thread.
//
// The thread runs a plain loop: receive a request, pin, send, unpin. It needs no state machine, and
// all its waits are bounded.
//
// sendmsg() copies the bytes into the socket, so the pins end once the kernel has the last byte of
// an answer. Zero-copy was measured (docs/protocol.md) and is not faster here. It would also need
// the pins until the reader confirms.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "pool/pool.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/stream.h"
#include "transfer/tcp/tcp_server.h"

namespace peercached::tcp {

class ServerChannel {
 public:
  ServerChannel(Socket socket, const TcpServerConfig& config, Pool& pool,
                const TcpServer::TokenOf& token_of, const TcpServer::Answers& answers,
                TcpServerStats& counters);

  // Returns when the channel has ended. `let_in` is called once the peer is authenticated, and says
  // whether it may have one more channel.
  void serve(const std::function<bool()>& let_in);
  // Call it instead of serve() if there are too many channels.
  void turn_away();
  // Ends serve() soon. Any thread may call it.
  void cut() const;
  bool belongs_to(const std::string& node_id, Incarnation incarnation) const;
  std::string node_id() const;
  const std::string& host() const { return host_; }  // of the other end

 private:
  enum class Got { all, closed, late };

  Incarnation incarnation() const;
  bool shake(Deadline deadline);
  bool greet(const std::function<bool()>& let_in);
  void no_hello(Got got);
  bool refuse(Refusal reason, std::string_view text);
  // False: the channel must end.
  bool serve_request();
  bool bad_frame();
  bool answer_read();
  bool answer_hold();
  bool answer_lookup();
  bool answer_push();
  bool answer_follow();
  // Receives one frame of these kinds; its body is then in frame_. `wrong`: the error in its
  // header.
  Got receive_frame(std::initializer_list<FrameKind> kinds, size_t body_bytes_max,
                    Deadline deadline, FrameKind& kind, const char*& wrong);
  Got receive(size_t bytes, Deadline deadline);  // into frame_
  bool wait_for_request();
  bool wait_for_room();
  bool send(std::span<const std::byte> bytes);
  bool send_answer(std::span<const PinnedPage> pages = {}, uint64_t payload_bytes = 0);

  Stream stream_;
  const TcpServerConfig& config_;
  Pool& pool_;
  const TcpServer::TokenOf& token_of_;
  const TcpServer::Answers& answers_;
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

  bool is_followed_ = false;

  // These are kept between requests for their capacity only.
  std::vector<std::byte> frame_;
  std::vector<PageWanted> wanted_;
  std::vector<PageStatus> statuses_;
  std::vector<Digest> digests_;
  std::vector<uint8_t> held_;
  Located located_;
  std::vector<RecordRow> rows_;
};

}  // namespace peercached::tcp
