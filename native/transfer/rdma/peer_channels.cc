#include "transfer/rdma/peer_channels.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "common/event_fd.h"

namespace peercached::rdma {
namespace {

// More than could exist at once. If a number gets lost, the peer frees its oldest channels.
constexpr size_t kClosedNumbersMax = 256;

}  // namespace

PeerChannels::PeerChannels(HolderIndex peer, Incarnation incarnation,
                           std::span<const std::unique_ptr<Rail>> rails, unsigned channels_max,
                           ChannelRequests& requests, std::atomic<uint32_t>& next_number)
    : peer_(peer),
      incarnation_(incarnation),
      rails_(rails),
      channels_max_(std::max(channels_max, 1u)),
      requests_(requests),
      next_number_(next_number),
      trusts_(rails.size()),
      in_flight_(rails.size()) {}

PeerChannels::~PeerChannels() { assert(waiters_.empty()); }

PeerChannels::Lease PeerChannels::lease(uint32_t first_rail, bool waiting, bool patient) {
  Gone gone;
  MutexLock lock(mutex_);
  if (closed()) return {nullptr, false};
  const TimePoint now = Clock::now();
  bool hope = connecting() != 0;
  for (uint32_t i = 0; i < rails_.size(); ++i) {
    const uint32_t rail = static_cast<uint32_t>((first_rail + i) % rails_.size());
    if (!rails_[rail]->up()) continue;
    if (!trusts_[rail].relied_on() && !proved(rail, now, gone)) continue;
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (entry->channel->rail().index != rail) continue;
      if (patient) hope = true;  // lent ones come back
      if (entry->state != State::idle) continue;
      entry->state = State::lent;
      return {entry->channel.get(), true};
    }
    if (!trusts_[rail].may_connect(now) || count(rail) >= channels_max_) continue;
    // One connect for each waiting read is enough.
    const size_t wanting = waiters_.size() + (waiting ? 0 : 1);
    if (connecting() < wanting) begin_connect(rail);
    if (connecting() != 0) return {nullptr, true};
  }
  return {nullptr, hope};
}

unsigned PeerChannels::count(uint32_t rail) const {
  return static_cast<unsigned>(
      std::count_if(entries_.begin(), entries_.end(),
                    [&](const Entry& entry) { return entry.channel->rail().index == rail; }));
}

size_t PeerChannels::connecting() const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
        return entry.state == State::connecting && trusts_[entry.channel->rail().index].relied_on();
      }));
}

void PeerChannels::begin_connect(uint32_t rail) {
  try {
    const uint32_t number = next_number_.fetch_add(1);
    auto channel = std::make_shared<Channel>(*rails_[rail], number);
    const auto own = std::as_bytes(std::span(&channel->own_end(), 1));
    if (!requests_.request_channel(peer_, number, own, closed_numbers_)) {
      back_off(rail, "the control plane is too busy to connect a channel");
      return;
    }
    entries_.push_back(
        {std::move(channel), number, State::connecting, std::exchange(closed_numbers_, {})});
  } catch (const VerbsError& error) {
    back_off(rail, error.what());
  }
}

std::vector<PeerChannels::Entry>::iterator PeerChannels::find(const Channel* channel) {
  return std::find_if(entries_.begin(), entries_.end(),
                      [&](const Entry& entry) { return entry.channel.get() == channel; });
}

std::vector<PeerChannels::Entry>::iterator PeerChannels::find_connecting(uint32_t number) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.number == number && entry.state == State::connecting;
  });
}

std::shared_ptr<Channel> PeerChannels::take(std::vector<Entry>::iterator entry) {
  // The numbers that went with a failed connect may not have arrived: send them again.
  entry->closed.push_back(entry->number);
  for (const uint32_t number : entry->closed) {
    if (closed_numbers_.size() < kClosedNumbersMax) closed_numbers_.push_back(number);
  }
  std::shared_ptr<Channel> channel = std::move(entry->channel);
  entries_.erase(entry);
  return channel;
}

void PeerChannels::give_back(Channel* channel) {
  Gone unwanted;
  MutexLock lock(mutex_);
  const uint32_t rail = channel->rail().index;
  trusts_[rail].in_order();
  if (closed() || !channel->rail().up() || !trusts_[rail].relied_on()) {
    unwanted.push_back(take(find(channel)));
  } else {
    find(channel)->state = State::idle;
    // The rail is trusted again, so nobody needs its proof.
    if (const auto proof = find(rail, State::proving); proof != entries_.end()) {
      unwanted.push_back(take(proof));
    }
  }
  wake_one();
}

void PeerChannels::wait_with(int event_fd) {
  MutexLock lock(mutex_);
  waiters_.push_back(event_fd);
}

void PeerChannels::stop_waiting(int event_fd) {
  MutexLock lock(mutex_);
  const auto found = std::find(waiters_.begin(), waiters_.end(), event_fd);
  if (found == waiters_.end()) return;
  waiters_.erase(found);
  // We may have taken the wake-up for a channel that is idle now: pass it on.
  const auto idle = [](const Entry& entry) { return entry.state == State::idle; };
  if (std::any_of(entries_.begin(), entries_.end(), idle)) wake_one();
}

bool PeerChannels::connected(uint32_t number, ChannelAnswer answer) {
  std::shared_ptr<Channel> channel;
  {
    MutexLock lock(mutex_);
    const auto entry = find_connecting(number);
    if (entry == entries_.end()) return false;
    channel = entry->channel;
  }
  // Not under the lock: the kernel may first resolve the peer's address over the network.
  std::string why;
  try {
    if (answer.pool.incarnation != incarnation_) throw std::invalid_argument("it has restarted");
    channel->connect(std::move(answer));
  } catch (const std::exception& error) {
    why = error.what();
  }
  MutexLock lock(mutex_);
  const auto entry = find_connecting(number);
  if (entry == entries_.end()) return false;  // closed meanwhile, or its rail is down
  entry->closed.clear();                      // the peer has received them
  const uint32_t rail = channel->rail().index;
  const bool doubted = !trusts_[rail].relied_on();
  const bool one_more_proof = doubted && has(rail, State::proving);
  try {
    if (why.empty() && doubted && !one_more_proof) channel->ask();
  } catch (const VerbsError& error) {
    why = error.what();
  }
  if (!why.empty() || one_more_proof) {
    take(entry);  // `channel` keeps it alive until the lock is released
    if (!why.empty()) not_connected(rail, why);
  } else {
    entry->state = doubted ? State::proving : State::idle;
  }
  wake_all();
  return true;
}

bool PeerChannels::refused(uint32_t number, const std::string& why) {
  std::shared_ptr<Channel> unwanted;
  MutexLock lock(mutex_);
  const auto entry = find_connecting(number);
  if (entry == entries_.end()) return false;
  unwanted = take(entry);
  not_connected(unwanted->rail().index, "connecting: " + why);
  wake_all();
  return true;
}

void PeerChannels::leave_rail(const Rail& rail) {
  Gone gone;
  MutexLock lock(mutex_);
  end(&rail, gone);
}

void PeerChannels::close() {
  Gone gone;
  MutexLock lock(mutex_);
  closed_.store(true, std::memory_order_release);
  end(nullptr, gone);
}

// Ends the channels on `rail`, or all. Lent ones break off, and go when their lanes return them.
void PeerChannels::end(const Rail* rail, Gone& gone) {
  for (size_t i = entries_.size(); i-- > 0;) {
    const auto entry = entries_.begin() + static_cast<std::ptrdiff_t>(i);
    if (rail != nullptr && &entry->channel->rail() != rail) continue;
    if (entry->state == State::lent) {
      entry->channel->break_off();
    } else {
      gone.push_back(take(entry));
    }
  }
  wake_all();
}

uint32_t PeerChannels::size() const {
  MutexLock lock(mutex_);
  return static_cast<uint32_t>(entries_.size());
}

void PeerChannels::wake_one() {
  if (waiters_.empty()) return;
  ring(waiters_.front());
  std::rotate(waiters_.begin(), waiters_.begin() + 1,
              waiters_.end());  // a fair turn for all
}

void PeerChannels::wake_all() {
  for (int event_fd : waiters_) ring(event_fd);
}

}  // namespace peercached::rdma
