// PeerChannels, the part of it that deals with rails that give trouble.
#include <algorithm>
#include <chrono>

#include "transfer/rdma/peer_channels.h"
#include "transfer/silence.h"

namespace peercached::rdma {
namespace {

// A header that has not come in this time will not; where packets get lost, it is sent again.
constexpr auto kProofMax = std::chrono::milliseconds(1000);

}  // namespace

void PeerChannels::retire(Channel* channel, const std::string& why) {
  Gone gone;
  {
    std::lock_guard lock(mutex_);
    const uint32_t rail = channel->rail().index;
    gone.push_back(take(find(channel)));
    if (!why.empty()) {
      back_off(rail, why);
      take_idle(rail, gone);
    }
  }
  gone.front()->fence();
  gone.clear();
  std::lock_guard lock(mutex_);
  wake_all();
}

void PeerChannels::retire_silent(Channel* channel) {
  {
    std::lock_guard lock(mutex_);
    trusts_[channel->rail().index].fell_silent(Clock::now());
  }
  retire(channel, channel->rail().name() + " was silent until the deadline");
}

// They are of the same age as one that broke, and would each take as long to find out.
void PeerChannels::take_idle(uint32_t rail, Gone& gone) {
  for (size_t i = entries_.size(); i-- > 0;) {
    const auto entry = entries_.begin() + static_cast<std::ptrdiff_t>(i);
    if (entry->state == State::idle && entry->channel->rail().index == rail) {
      gone.push_back(take(entry));
    }
  }
}

bool PeerChannels::silent(const Channel& channel, TimePoint started) const {
  const TimePoint heard = std::max(channel.quiet_since(), trusts_[channel.rail().index].heard_at());
  return is_silence(heard, started, Clock::now());
}

// Of a silent rail: whether the one header that is asked for has come. Nobody waits for it.
bool PeerChannels::proved(uint32_t rail, TimePoint now, Gone& gone) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) {
    return one.channel->rail().index == rail &&
           (one.state == State::connecting || one.state == State::proving);
  });
  if (entry == entries_.end()) {
    if (trusts_[rail].may_connect(now) && count(rail) < channels_max_) begin_connect(rail);
    return false;
  }
  if (entry->state == State::connecting) return false;
  Channel& channel = *entry->channel;
  if (channel.answered()) {
    trusts_[rail].heard(now);
    trusts_[rail].in_order();
    entry->state = State::idle;
    return true;
  }
  if (!channel.trouble().empty() || now - channel.quiet_since() > kProofMax) {
    back_off(rail, channel.trouble().empty() ? rails_[rail]->name() + " is silent still"
                                             : channel.trouble());
    gone.push_back(take(entry));
  }
  return false;
}

bool PeerChannels::usable() {
  Gone gone;
  std::lock_guard lock(mutex_);
  if (closed()) return false;
  const TimePoint now = Clock::now();
  bool any = false;
  for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
    if (!rails_[rail]->up()) continue;
    if (trusts_[rail].silent()) {
      any |= proved(rail, now, gone);
    } else {
      any |= count(rail) != 0 || trusts_[rail].may_connect(now);
    }
  }
  return any;
}

void PeerChannels::back_off(uint32_t rail, const std::string& why) {
  trusts_[rail].back_off(Clock::now());
  last_trouble_ = why;
  rails_[rail]->counters.errors.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace peercached::rdma
