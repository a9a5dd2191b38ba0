// The part of PeerChannels that handles rails in trouble.
#include <algorithm>
#include <chrono>

#include "transfer/rdma/peer_channels.h"
#include "transfer/silence.h"

namespace peercached::rdma {
namespace {

std::string in_ms(Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) +
         " ms";
}

}  // namespace

void PeerChannels::retire(Channel* channel, Fault fault, Clock::duration proof_within) {
  Gone gone;
  {
    MutexLock lock(mutex_);
    const uint32_t rail = channel->rail().index;
    if (fault == Fault::silence) {
      const std::string why = channel->rail().name() + ": no answer for " + in_ms(quiet(*channel));
      doubt(rail, why, proof_within);
    } else if (fault == Fault::error && channel->unanswered()) {
      doubt(rail, channel->trouble());
    } else if (fault == Fault::error) {
      back_off(rail, channel->trouble());
    }
    gone.push_back(take(find(channel)));
    if (fault != Fault::none) take_idle(rail, gone);
  }
  gone.front()->fence();
  gone.clear();
  MutexLock lock(mutex_);
  wake_all();
}

void PeerChannels::doubt_slow_connects(Clock::duration late_after, bool tcp_follows) {
  MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  for (const Entry& entry : entries_) {
    const Rail& rail = entry.channel->rail();
    const RailTrust& trust = trusts_[rail.index];
    if (entry.state != State::connecting || !trust.relied_on()) continue;
    if (now - trust.heard_at() < late_after) continue;
    if (!tcp_follows && !others_relied_on(rail)) continue;
    doubt(rail.index, rail.name() + ": no channel within " + in_ms(late_after));
  }
}

// Idle channels are as old as the one that broke. Each read that tried one would be late as well.
void PeerChannels::take_idle(uint32_t rail, Gone& gone) {
  while (has(rail, State::idle)) gone.push_back(take(find(rail, State::idle)));
}

bool PeerChannels::silent(const Channel& channel, TimePoint started) const {
  return is_silence(last_heard(channel), started, Clock::now());
}

bool PeerChannels::relied_on_besides(const Rail& rail) const {
  MutexLock lock(mutex_);
  return others_relied_on(rail);
}

bool PeerChannels::others_relied_on(const Rail& rail) const {
  return std::any_of(rails_.begin(), rails_.end(), [&](const auto& other) {
    return other.get() != &rail && other->up() && trusts_[other->index].relied_on();
  });
}

// Takes the next step to prove that a doubted rail works: begins to connect a test channel, or
// checks whether its test READs (Channel::ask) are back. True: they are. If they failed or are
// late, the rail backs off. Never waits.
bool PeerChannels::proved(uint32_t rail, TimePoint now, Gone& gone) {
  if (const auto entry = find(rail, State::proving); entry != entries_.end()) {
    Channel& channel = *entry->channel;
    const bool late = now - channel.asked_at() > trusts_[rail].proof_within();
    if (channel.answered() && !late) {
      trusts_[rail].heard(now);
      trusts_[rail].in_order();
      entry->state = State::idle;
      return true;
    }
    if (!channel.trouble().empty() || late) {
      back_off(rail, channel.no_proof());
      gone.push_back(take(entry));
    }
    return false;
  }
  if (!has(rail, State::connecting) && trusts_[rail].may_connect(now) &&
      count(rail) < channels_max_) {
    begin_connect(rail);
  }
  return false;
}

std::vector<PeerChannels::Entry>::iterator PeerChannels::find(uint32_t rail, State state) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& one) {
    return one.state == state && one.channel->rail().index == rail;
  });
}

bool PeerChannels::proving() const {
  MutexLock lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& one) { return one.state == State::proving; });
}

bool PeerChannels::usable() {
  Gone gone;
  MutexLock lock(mutex_);
  if (closed()) return false;
  const TimePoint now = Clock::now();
  bool any = false;
  for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
    if (!rails_[rail]->up()) continue;
    if (trusts_[rail].relied_on()) {
      any |= count(rail) != 0 || trusts_[rail].may_connect(now);
    } else {
      any |= proved(rail, now, gone);
    }
  }
  return any;
}

void PeerChannels::back_off(uint32_t rail, const std::string& why) {
  trusts_[rail].back_off(Clock::now(), why);
  rails_[rail]->counters.errors.fetch_add(1, std::memory_order_relaxed);
}

void PeerChannels::doubt(uint32_t rail, const std::string& why, Clock::duration proof_within) {
  trusts_[rail].doubt(Clock::now(), why, proof_within);
  rails_[rail]->counters.errors.fetch_add(1, std::memory_order_relaxed);
}

// If the rail has working channels, it only backs off: a failed connect says nothing about those.
void PeerChannels::not_connected(uint32_t rail, const std::string& why) {
  if (has(rail, State::idle) || has(rail, State::lent)) {
    back_off(rail, why);
  } else {
    doubt(rail, why);
  }
}

void PeerChannels::add_troubles(std::vector<RailTrouble>& all) const {
  MutexLock lock(mutex_);
  for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
    if (trusts_[rail].relied_on() || !rails_[rail]->up()) continue;
    all.push_back({peer_, rail, trusts_[rail].trouble()});
  }
}

}  // namespace peercached::rdma
