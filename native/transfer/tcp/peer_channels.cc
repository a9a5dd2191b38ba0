#include "transfer/tcp/peer_channels.h"

#include <algorithm>
#include <cassert>

#include "common/event_fd.h"

namespace peercached::tcp {

PeerChannels::PeerChannels(Dial dial, unsigned channels_max)
    : dial_(std::move(dial)), channels_max_(std::max(channels_max, 1u)) {}

PeerChannels::~PeerChannels() { assert(idle_.size() == all_.size() && waiters_.empty()); }

Channel* PeerChannels::lease() {
  MutexLock lock(mutex_);
  if (closed()) return nullptr;
  while (!idle_.empty()) {
    // Take the one used last: its buffers are the warmest.
    Channel* channel = idle_.back();
    idle_.pop_back();
    channel->catch_up();
    if (channel->state() != Channel::State::broken) return channel;
    forget(channel);
  }
  if (all_.size() >= channels_max_) return nullptr;
  return all_.emplace_back(std::make_unique<Channel>(dial_)).get();
}

Channel* PeerChannels::replace(Channel* dead) {
  MutexLock lock(mutex_);
  for (Channel* idle : idle_) forget(idle);
  idle_.clear();
  forget(dead);
  wake_waiters();
  if (closed()) return nullptr;
  return all_.emplace_back(std::make_unique<Channel>(dial_)).get();
}

void PeerChannels::give_back(Channel* channel, bool reusable) {
  MutexLock lock(mutex_);
  if (reusable && !closed() && !channel->stream().is_worn()) {
    if (channel->state() == Channel::State::ready) channel->set_pooled();
    idle_.push_back(channel);
  } else {
    forget(channel);
  }
  wake_waiters();
}

void PeerChannels::wait_with(int event_fd) {
  MutexLock lock(mutex_);
  waiters_.push_back(event_fd);
  // A channel may have come back since the caller's lease().
  if (closed() || !idle_.empty() || all_.size() < channels_max_) wake_waiters();
}

void PeerChannels::stop_waiting(int event_fd) {
  MutexLock lock(mutex_);
  auto it = std::find(waiters_.begin(), waiters_.end(), event_fd);
  if (it != waiters_.end()) waiters_.erase(it);
}

void PeerChannels::close() {
  MutexLock lock(mutex_);
  closed_.store(true, std::memory_order_release);
  for (Channel* idle : idle_) forget(idle);
  idle_.clear();
  for (const auto& lent : all_) lent->shut();
  wake_waiters();
}

uint32_t PeerChannels::size() const {
  MutexLock lock(mutex_);
  return static_cast<uint32_t>(all_.size());
}

void PeerChannels::forget(Channel* channel) {
  std::erase_if(all_, [&](const auto& one) { return one.get() == channel; });
}

void PeerChannels::wake_waiters() {
  // Wake all: they are few, and a single chosen one might just be giving up.
  for (int event_fd : waiters_) ring(event_fd);
}

}  // namespace peercached::tcp
