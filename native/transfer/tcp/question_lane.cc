#include "transfer/tcp/question_lane.h"

#include <cerrno>

namespace peercached::tcp {

QuestionLane::~QuestionLane() {
  // A channel that is still connecting is given back: the next call can use it.
  if (!finished_) end(answer_.empty(), "");
}

void QuestionLane::proceed() {
  while (!finished_) {
    if (channel_ == nullptr) {
      channel_ = channels_->lease();
      if (channel_ == nullptr && channels_->closed()) end(false, "");
      if (channel_ == nullptr) return;
    }
    channel_->catch_up();
    if (channel_->state() == Channel::State::broken) {
      broken(channel_->trouble());
      continue;
    }
    if (channel_->state() != Channel::State::ready) return;
    const bool asks = answer_.empty();
    if (asks && !ask()) return end(true, "");
    if (!channel_->flush()) {
      broken("broken while a question was sent: " + channel_->stream().error_text(errno));
      continue;
    }
    if (asks) return;  // no answer comes as soon as that
    if (!receive()) {
      if (channel_ != nullptr) return;
      continue;
    }
  }
}

bool QuestionLane::ask() {
  request_ = channel_->next_request();
  if (!question_.ask(request_, channel_->unsent())) return false;
  answer_.resize(kAnswerBytes);
  answer_have_ = 0;
  answer_bytes_ = 0;
  return true;
}

bool QuestionLane::receive() {
  FrameHeader header;
  while (answer_bytes_ == 0 || answer_have_ < answer_bytes_) {
    if (answer_bytes_ == 0 && answer_have_ >= sizeof header) {
      const char* wrong =
          parse_header(std::span(answer_).first(sizeof header), {question_.answer_kind()},
                       question_.answer_bytes_max(), header);
      answer_bytes_ = sizeof header + header.body_bytes;
      if (wrong == nullptr && header.body_bytes == 0) wrong = "no body";
      if (wrong == nullptr && answer_have_ > answer_bytes_) wrong = "more than it should be";
      if (wrong != nullptr) {
        end(false, std::string("sent a bad answer: ") + wrong);
        return false;
      }
      answer_.resize(answer_bytes_);
      continue;
    }
    const ssize_t n =
        channel_->stream().receive(answer_.data() + answer_have_, answer_.size() - answer_have_);
    if (n > 0) {
      answer_have_ += static_cast<size_t>(n);
      channels_->counters.last_heard.store(Clock::now(), std::memory_order_relaxed);
    } else if (n == 0) {
      broken("closed the connection");
      return false;
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      broken("broken while it answered: " + channel_->stream().error_text(errno));
      return false;
    }
  }
  const auto body = std::span<const std::byte>(answer_).subspan(sizeof header);
  if (const char* wrong = question_.answered(request_, body)) {
    end(false, std::string("sent a bad answer: ") + wrong);
    return false;
  }
  ++answers_;
  answer_.clear();
  return true;
}

void QuestionLane::broken(const Trouble& trouble) {
  const bool heard = answer_have_ != 0;
  answer_.clear();
  answer_have_ = 0;
  if (!channel_->pooled() || heard || answers_ != 0) return end(false, trouble);
  // The idle connection has died, most likely with its peer, which may be back. Try a fresh one.
  channel_ = channels_->replace(channel_);
  if (channel_ == nullptr) end(false, "");
}

void QuestionLane::end(bool reusable, Trouble trouble) {
  finished_ = true;
  trouble_ = std::move(trouble);
  if (channel_ != nullptr) channels_->give_back(channel_, reusable);
  channel_ = nullptr;
}

}  // namespace peercached::tcp
