// One connection of a reader, from hello to end or to its first `follow`, on its own thread.
//
// The thread runs a plain loop: receive a request, pin, send, unpin. It needs no state machine, and
// all its waits are bounded.
//
// sendmsg() copies the bytes into the socket, so the pins end once the kernel has the last byte of
// an answer. Zero-copy was measured (docs/protocol.md) and is not faster here. It would also need
// the pins until the reader confirms.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "pool/pool.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/server_stream.h"
#include "transfer/tcp/tcp_server.h"

namespace peercached::tcp {

class ServerChannel {
 public:
  ServerChannel(ServerStream& peer, const TcpServerConfig& config, Pool& pool,
                const TcpServer::TokenOf& token_of, const TcpServer::Answers& answers,
                TcpServerStats& counters);

  // Returns when the channel has ended, or true with a `follow` as its last frame: then a
  // FollowServer goes on. `let_in` is called once the peer is authenticated, and says whether it
  // may have one more channel.
  bool serve(const std::function<bool()>& let_in);
  // Call it instead of serve() if there are too many channels.
  void turn_away();

 private:
  using Got = ServerStream::Got;

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
  // As ServerStream::receive(). `none`: it has not come in time.
  Got receive_frame(std::initializer_list<FrameKind> kinds, size_t body_bytes_max,
                    Deadline deadline);
  bool wait_for_request();
  bool wait_for_room();
  bool send(std::span<const std::byte> bytes);
  bool send_answer(std::span<const PinnedPage> pages = {}, uint64_t payload_bytes = 0);

  ServerStream& peer_;
  Stream& stream_;  // of peer_
  const TcpServerConfig& config_;
  Pool& pool_;
  const TcpServer::TokenOf& token_of_;
  const TcpServer::Answers& answers_;
  TcpServerStats& counters_;
  bool follows_ = false;

  // These are kept between requests for their capacity only.
  std::vector<std::byte> frame_;  // to send
  std::vector<PageWanted> wanted_;
  std::vector<PinnedPage> pages_;  // by page wanted; empty: it is not here
  std::vector<PageStatus> statuses_;
  std::vector<Digest> digests_;
  std::vector<uint8_t> held_;
  Located located_;
  std::vector<RecordRow> rows_;
};

}  // namespace peercached::tcp
