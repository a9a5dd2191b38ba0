// One peer's part of a call that asks several peers. It borrows a channel from those of the reads.
// Never blocks; many lanes share one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "transfer/tcp/peer_channels.h"
#include "transfer/tcp/question.h"

namespace peercached::tcp {

class QuestionLane {
 public:
  QuestionLane(Question& question, std::shared_ptr<PeerChannels> channels)
      : question_(question), channels_(std::move(channels)) {}
  ~QuestionLane();  // gives up an unanswered question, and its channel
  QuestionLane(const QuestionLane&) = delete;
  QuestionLane& operator=(const QuestionLane&) = delete;

  const Question& question() const { return question_; }
  // Goes on as far as possible without waiting.
  void proceed();
  bool finished() const { return finished_; }
  // True if it waits for a channel because all are lent to reads.
  bool waiting() const { return channel_ == nullptr; }
  int fd() const { return channel_ == nullptr ? -1 : channel_->fd(); }
  short poll_events() const { return channel_->poll_events(); }
  // Data has arrived that poll() does not report.
  bool has_more() const { return channel_ != nullptr && channel_->stream().has_more(); }
  TimePoint until(TimePoint deadline) const {
    return channel_ == nullptr ? deadline : std::min(deadline, channel_->greeted_by());
  }
  // The trouble that ended it early; empty if there was none.
  const Trouble& trouble() const { return trouble_; }
  // At the deadline: how long the peer has been silent, in words; empty if it was not silent.
  std::string silence(TimePoint started) const {
    return finished_ || answer_.empty() ? "" : channels_->counters.silence(started);
  }

 private:
  // Room for an answer before its size is known. Most are smaller, and come in one piece.
  static constexpr size_t kAnswerBytes = 512;

  bool ask();      // false: nothing is left to ask for
  bool receive();  // true: an answer is complete
  void broken(const Trouble& trouble);
  void end(bool reusable, Trouble trouble);

  Question& question_;
  const std::shared_ptr<PeerChannels> channels_;
  Channel* channel_ = nullptr;
  unsigned answers_ = 0;
  uint64_t request_ = 0;
  std::vector<std::byte> answer_;  // header, then body; empty: no question is in flight
  size_t answer_have_ = 0;
  size_t answer_bytes_ = 0;  // 0: not known yet
  bool finished_ = false;
  Trouble trouble_;
};

}  // namespace peercached::tcp
