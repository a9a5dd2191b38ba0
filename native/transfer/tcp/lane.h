// One channel at work for one read call. It claims pages, keeps up to two requests in flight and
// receives the answers into their destinations. The thread that polls it drives it; it never
// blocks.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "transfer/tcp/answer_reader.h"
#include "transfer/tcp/arrival_sum.h"
#include "transfer/tcp/channel.h"
#include "transfer/tcp/peer_read.h"

namespace peercached::tcp {

class Lane {
 public:
  // If `channel` is null, the lane waits until the peer has one to lend.
  Lane(ReadCall& call, PeerRead& peer, Channel* channel);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  bool finished() const { return finished_; }
  bool waiting() const { return channel_ == nullptr && !finished_; }

  // Call first, on the thread that drives the lane.
  void begin(int wake_fd);
  // Arguments for poll(), and its timeout. fd < 0: nothing to poll.
  int fd() const { return channel_ == nullptr ? -1 : channel_->fd(); }
  short poll_events() const { return channel_->poll_events(); }
  // Data has arrived that poll() does not report.
  bool has_more() const { return channel_ != nullptr && channel_->stream().has_more(); }
  TimePoint until() const {
    if (channel_ == nullptr) return peer_.judged_at();
    return std::min(peer_.judged_at(), channel_->greeted_by());
  }
  // Call it when the socket has one of poll_events().
  void proceed();
  // Checks for other changes: a channel came back, the work is done, a timeout has passed.
  void look_around(TimePoint now);
  // Deadline or fence: shuts the channel if a request is in flight, and writes nothing more.
  void abandon();

 private:
  // With two, the holder finds the next request waiting when it has sent an answer.
  static constexpr size_t kRequestsMax = 2;
  struct Request {
    uint64_t id;
    std::span<ReadOp> ops;
  };

  void work();
  bool flush();
  void receive();
  bool receive_piece(bool& drained);
  void land();
  void broken(Trouble trouble);  // by value: the channel that has it is given back meanwhile
  void end(bool reusable, const Trouble& trouble);

  ReadCall& call_;
  PeerRead& peer_;
  Channel* channel_;
  int wake_fd_ = -1;  // wakes us when a channel comes back
  bool finished_ = false;
  bool heard_ = false;                             // a byte of an answer has come on this channel
  std::array<Request, kRequestsMax> outstanding_;  // oldest first
  size_t outstanding_count_ = 0;
  AnswerReader answer_;  // to the oldest request
  ArrivalSum sum_;
  std::vector<PageWanted> wanted_;  // these two are kept for their capacity only
  std::vector<ReadOp*> landed_;
};

// Drives the lanes on this thread until all are finished, at the latest at the deadline.
void drive(ReadCall& call, std::span<Lane* const> lanes, int wake_fd);

}  // namespace peercached::tcp
