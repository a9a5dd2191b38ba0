#include "transfer/rdma/lane.h"

#include <algorithm>
#include <utility>

namespace peercached::rdma {

Lane::Lane(ReadCall& call, PeerRead& peer, uint32_t first_rail, bool main, int wake_fd)
    : call_(call), peer_(peer), first_rail_(first_rail), main_(main), wake_fd_(wake_fd) {
  place_.event_fd = wake_fd;
}

Lane::~Lane() {
  if (!finished_) abandon();
}

bool Lane::find_channel() {
  const auto [channel, hope] = peer_.channels().lease(first_rail_, waiting_, main_ || gave_way_);
  channel_ = channel;
  if (channel != nullptr || !hope) {
    if (waiting_) peer_.channels().stop_waiting(wake_fd_);
    waiting_ = false;
    if (channel == nullptr) finished_ = true;
    return true;
  }
  if (waiting_) {
    if (Clock::now() < waits_until()) return false;
    peer_.channels().doubt_slow_connects(call_.late_after, peer_.tcp_follows());
    waiting_since_ = Clock::now();
    return true;
  }
  // A channel that came back since lease() did not wake us. So the caller must try again.
  peer_.channels().wait_with(wake_fd_);
  waiting_ = true;
  waiting_since_ = Clock::now();
  return true;
}

TimePoint Lane::waits_until() const {
  return waiting_ ? waiting_since_ + call_.late_after : TimePoint::max();
}

bool Lane::proceed() {
  if (finished_) return false;
  if (peer_.settled() && chains_count_ == 0) {
    end();
    return true;
  }
  if (channel_ == nullptr) return find_channel();
  if (chains_count_ == 0 && !peer_.channels().relied_on(channel_->rail()) && another_way()) {
    in_flight().leave(place_);  // do not join the queue of a doubted rail
    peer_.channels().give_back(std::exchange(channel_, nullptr));
    return true;
  }
  const size_t ended = channel_->poll();
  for (size_t i = 0; i < ended; ++i) harvest();  // the next chain is on the wire meanwhile
  if (!channel_->trouble().empty()) {
    broken();
    return true;
  }
  if (late()) {
    give_way();
    return true;
  }
  const size_t before = chains_count_;
  if (!post()) return true;
  if (chains_count_ == 0 && !wants_room()) end();
  return ended != 0 || chains_count_ != before || finished_;
}

bool Lane::post() {
  while (channel_->room() && !call_.over()) {
    // Reserve room before claiming slices: no other lane could read slices that wait here.
    if (!peer_.unclaimed()) break;
    if (!in_flight().take(place_, peer_.claim_bytes_max())) return true;
    Chain& chain = chains_[chains_count_];
    RegisteredMemory* region = peer_.claim(channel_->pool().bytes, chain.slices);
    chain.bytes = 0;
    for (const Slice& slice : chain.slices) chain.bytes += slice.bytes;
    in_flight().give_back(peer_.claim_bytes_max() - chain.bytes);
    if (region == nullptr) return true;
    if (!channel_->has_keys(chain.slices, peer_.batch().ops)) {
      in_flight().give_back(chain.bytes);
      if (!lacked_keys(chain.slices)) return false;
      continue;
    }
    if (!registered(*region, chain.slices)) {
      in_flight().give_back(chain.bytes);
      for (const Slice& slice : chain.slices) peer_.fail(slice, PageStatus::error);
      continue;
    }
    if (!call_.enter()) {
      in_flight().give_back(chain.bytes);
      call_.stopped = PageStatus::deadline;
      peer_.put_back(chain.slices, false);
      return true;
    }
    chain.posted_at = Clock::now();
    channel_->post(chain.slices, peer_.batch().ops, *region);
    ++chains_count_;
    if (channel_->trouble().empty()) continue;
    broken();
    return false;
  }
  if (wants_room()) in_flight().leave(place_);  // other lanes have claimed the rest
  return true;
}

// register_all() has done this already, except for a rail that came back since then.
bool Lane::registered(RegisteredMemory& region, std::span<const Slice> slices) const {
  return std::all_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    return region.ready(channel_->rail(), peer_.batch().ops[slice.op].dest + slice.at, slice.bytes,
                        call_.deadline);
  });
}

void Lane::harvest() {
  const Chain chain = std::move(chains_[0]);
  std::move(chains_.begin() + 1, chains_.begin() + static_cast<std::ptrdiff_t>(chains_count_),
            chains_.begin());
  --chains_count_;
  call_.leave();
  in_flight().give_back(chain.bytes);
  peer_.channels().heard(channel_->rail(), channel_->quiet_since());
  for (size_t i = 0; i < chain.slices.size(); ++i) {
    peer_.landed(chain.slices[i], channel_->before(i), channel_->after(i));
  }
  channel_->rail().counters.chains.add_since(chain.posted_at);
  channel_->rail().counters.bytes.fetch_add(chain.bytes, std::memory_order_relaxed);
  channel_->rail().counters.pages.fetch_add(
      static_cast<uint64_t>(std::count_if(chain.slices.begin(), chain.slices.end(),
                                          [](const Slice& slice) { return slice.leads(); })),
      std::memory_order_relaxed);
  channel_->release();
}

void Lane::broken() {
  put_back_all(true);
  lose_channel(PeerChannels::Fault::error);
}

// The holder has registered more of its pool since this channel was connected, so a new one has
// the keys. Or the record names memory that no page can be in. Returns whether the channel stays.
bool Lane::lacked_keys(std::span<const Slice> wanted) {
  if (channel_->connected_at() >= call_.started) {
    for (const Slice& slice : wanted) peer_.fail(slice, PageStatus::stale);
    return true;
  }
  peer_.put_back(wanted, false);
  put_back_all(false);
  lose_channel(PeerChannels::Fault::none);
  return false;
}

bool Lane::another_way() const {
  return peer_.tcp_follows() || peer_.channels().relied_on_besides(channel_->rail());
}

bool Lane::late() const {
  return reading() && Clock::now() - channel_->quiet_since() >= call_.late_after && another_way();
}

// Goes on with another trusted rail if there is one. In the second half of the call, leaves the
// rest to TCP.
void Lane::give_way() {
  const bool rail_too = peer_.channels().quiet(*channel_) >= call_.late_after;
  put_back_all(false);
  first_rail_ = channel_->rail().index + 1;
  lose_channel(rail_too ? PeerChannels::Fault::silence : PeerChannels::Fault::none,
               call_.late_after);
  gave_way_ = true;
  if (peer_.tcp_follows() && call_.half_over()) finished_ = true;
}

void Lane::put_back_all(bool broke) {
  for (size_t i = chains_count_; i-- > 0;) peer_.put_back(chains_[i].slices, broke);
}

// Fences the channel and all its chains. When this returns, nothing is written any more.
void Lane::lose_channel(PeerChannels::Fault fault, Clock::duration proof_within) {
  InFlight& rail = in_flight();
  rail.leave(place_);
  peer_.channels().retire(std::exchange(channel_, nullptr), fault, proof_within);
  while (chains_count_ != 0) {
    rail.give_back(chains_[--chains_count_].bytes);
    call_.leave();
  }
}

void Lane::end() {
  if (waiting_) peer_.channels().stop_waiting(wake_fd_);
  waiting_ = false;
  if (channel_ != nullptr) {
    in_flight().leave(place_);
    peer_.channels().give_back(std::exchange(channel_, nullptr));
  }
  finished_ = true;
}

void Lane::break_off() {
  if (!reading()) return;
  channel_->poll();  // we may have slept past the deadline while data came
  silent_ = call_.deadline.passed() && !call_.gate.fenced() &&
            peer_.channels().silent(*channel_, call_.started);
  channel_->break_off();
}

void Lane::abandon() {
  using Fault = PeerChannels::Fault;
  if (!finished_ && chains_count_ != 0) lose_channel(silent_ ? Fault::silence : Fault::none);
  if (!finished_) end();
}

}  // namespace peercached::rdma
