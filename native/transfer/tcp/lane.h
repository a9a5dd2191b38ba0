// One channel at work for one read call: claims pages, sends requests two deep, receives the
// answers into their destinations. Driven by the thread that polls it; never blocks.
#pragma once

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
  // `channel` may be null: then the lane waits until the peer has one to lend.
  Lane(ReadCall& call, PeerRead& peer, Channel* channel);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane();

  bool finished() const { return finished_; }
  bool waiting() const { return channel_ == nullptr && !finished_; }

  // On the thread that drives it, before anything else.
  void begin(int wake_fd);
  // What to poll for (fd < 0: nothing), and until when.
  int fd() const { return channel_ == nullptr ? -1 : channel_->fd(); }
  short poll_events() const;
  // Something is there that poll() does not tell of.
  bool has_more() const { return channel_ != nullptr && channel_->stream().has_more(); }
  TimePoint until() const;
  // The socket has what was polled for.
  void proceed();
  // Something else may have changed: a channel came back, the work is done, time is over.
  void look_around(TimePoint now);
  // Deadline or fence: shuts the channel if anything is outstanding, and writes no more.
  void abandon();

 private:
  // Two: the holder finds the next request waiting when it has sent an answer.
  static constexpr size_t kRequestsMax = 2;
  struct Request {
    uint64_t id;
    std::span<ReadOp> ops;
  };

  void work();
  bool fill();
  bool flush();
  void receive();
  bool receive_piece(bool& drained);
  void land();
  void broken(const Trouble& trouble);
  void end(bool reusable, const Trouble& trouble);

  ReadCall& call_;
  PeerRead& peer_;
  Channel* channel_;
  int wake_fd_ = -1;  // where we wait for a channel, if we do
  bool finished_ = false;
  bool heard_ = false;                             // a byte of an answer has come on this channel
  std::array<Request, kRequestsMax> outstanding_;  // oldest first
  size_t outstanding_count_ = 0;
  AnswerReader answer_;  // to the oldest
  ArrivalSum sum_;
  std::vector<std::byte> unsent_;
  size_t unsent_from_ = 0;
  std::vector<PageWanted> wanted_;  // these two: kept for their capacity only
  std::vector<ReadOp*> landed_;
};

// Drives the lanes on this thread until all are finished, at the deadline at the latest.
void drive(ReadCall& call, std::span<Lane* const> lanes, int wake_fd);

}  // namespace peercached::tcp
