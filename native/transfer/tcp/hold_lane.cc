#include "transfer/tcp/hold_lane.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "common/error_text.h"

namespace peercached::tcp {

HoldLane::HoldLane(const HoldBatch& batch, uint32_t hold_ms, std::shared_ptr<PeerChannels> channels)
    : batch_(batch),
      hold_ms_(hold_ms),
      channels_(std::move(channels)),
      finished_(batch.digests.empty()) {}

HoldLane::~HoldLane() {
  // One that is still connecting goes on by itself, for whoever comes next.
  if (!finished_) end(answer_.empty(), "");
}

short HoldLane::poll_events() const {
  if (channel_->state() != Channel::State::ready) return channel_->poll_events();
  return unsent_.empty() ? POLLIN : POLLIN | POLLOUT;
}

TimePoint HoldLane::until(TimePoint deadline) const {
  const bool greeting = channel_ != nullptr && channel_->state() != Channel::State::ready;
  return greeting ? std::min(deadline, channel_->greeted_by().at) : deadline;
}

void HoldLane::proceed(TimePoint now) {
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
    if (channel_->state() != Channel::State::ready) {
      if (now < channel_->greeted_by().at) return;
      channel_->time_out();
      broken(channel_->trouble());
      continue;
    }
    if (answer_.empty() && !ask()) return end(true, "");
    if (!flush()) continue;
    if (!receive()) {
      if (channel_ != nullptr) return;
      continue;
    }
  }
}

bool HoldLane::ask() {
  const auto left = batch_.digests.subspan(answered_);
  if (left.empty()) return false;
  const auto some = left.first(std::min<size_t>(left.size(), kHoldDigestsMax));
  request_ = channel_->next_request();
  append_hold(unsent_, request_, hold_ms_, some);
  answer_.resize(held_bytes(some.size()));
  answer_have_ = 0;
  return true;
}

bool HoldLane::flush() {
  while (unsent_from_ < unsent_.size()) {
    const ssize_t n = ::send(channel_->fd(), unsent_.data() + unsent_from_,
                             unsent_.size() - unsent_from_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      unsent_from_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      broken("broken while sending a hold: " + error_text(errno));
      return false;
    }
  }
  unsent_.clear();
  unsent_from_ = 0;
  return true;
}

bool HoldLane::receive() {
  while (answer_have_ < answer_.size()) {
    const ssize_t n = ::recv(channel_->fd(), answer_.data() + answer_have_,
                             answer_.size() - answer_have_, MSG_DONTWAIT);
    if (n > 0) {
      answer_have_ += static_cast<size_t>(n);
      channels_->counters.last_heard.store(Clock::now(), std::memory_order_relaxed);
    } else if (n == 0) {
      broken("closed the connection");
      return false;
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      broken("broken while answering a hold: " + error_text(errno));
      return false;
    }
  }
  const size_t count = answer_.size() - held_bytes(0);
  const char* wrong = parse_held(answer_, request_, batch_.held.subspan(answered_, count));
  if (wrong != nullptr) {
    std::fill_n(batch_.held.begin() + static_cast<std::ptrdiff_t>(answered_), count, uint8_t{0});
    end(false, std::string("sent a bad answer: ") + wrong);
    return false;
  }
  answered_ += count;
  answer_.clear();
  return true;
}

void HoldLane::broken(const std::string& trouble) {
  const bool heard = answer_have_ != 0;
  unsent_.clear();
  unsent_from_ = 0;
  answer_.clear();
  answer_have_ = 0;
  if (!channel_->pooled() || heard || answered_ != 0) return end(false, trouble);
  // It died while it lay idle, most likely with its peer, which may be back: one fresh one tells.
  channel_ = channels_->replace(channel_);
  if (channel_ == nullptr) end(false, "");
}

void HoldLane::end(bool reusable, std::string trouble) {
  finished_ = true;
  trouble_ = std::move(trouble);
  if (channel_ != nullptr) channels_->give_back(channel_, reusable);
  channel_ = nullptr;
}

}  // namespace peercached::tcp
