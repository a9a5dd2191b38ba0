#include "transfer/rdma/lane.h"

#include <algorithm>
#include <utility>

namespace peercached::rdma {

Lane::Lane(ReadCall& call, PeerRead& peer, uint32_t first_rail, int wake_fd)
    : call_(call), peer_(peer), first_rail_(first_rail), wake_fd_(wake_fd) {}

Lane::~Lane() {
  if (!finished_) abandon();
}

bool Lane::find_channel() {
  const auto [channel, hope] = peer_.channels().lease(first_rail_, waiting_);
  channel_ = channel;
  if (channel != nullptr || !hope) {
    if (waiting_) peer_.channels().stop_waiting(wake_fd_);
    waiting_ = false;
    if (channel == nullptr) finished_ = true;
    return true;
  }
  if (waiting_) return false;
  // What came back between the lease and this would not wake us: so once more.
  peer_.channels().wait_with(wake_fd_);
  waiting_ = true;
  return true;
}

bool Lane::proceed() {
  if (finished_) return false;
  if (peer_.settled() && chains_count_ == 0) {
    end();
    return true;
  }
  if (channel_ == nullptr) return find_channel();
  const size_t ended = channel_->poll();
  for (size_t i = 0; i < ended; ++i) harvest();  // the other chain is on the wire meanwhile
  if (!channel_->trouble().empty()) {
    broken();
    return true;
  }
  const size_t before = chains_count_;
  if (!post()) return true;
  if (chains_count_ == 0) end();
  return ended != 0 || chains_count_ != before || finished_;
}

bool Lane::post() {
  while (channel_->room() && !call_.over()) {
    Chain& chain = chains_[chains_count_];
    RegisteredMemory* region = peer_.claim(channel_->pool().bytes, chain.slices);
    if (region == nullptr) return true;
    if (!registered(*region, chain.slices)) {
      for (const Slice& slice : chain.slices) peer_.fail(slice, PageStatus::error);
      continue;
    }
    if (!call_.enter()) {
      call_.stopped = PageStatus::deadline;
      peer_.put_back(chain.slices);
      return true;
    }
    channel_->post(chain.slices, peer_.batch().ops, *region);
    ++chains_count_;
    if (channel_->trouble().empty()) continue;
    broken();
    return false;
  }
  return true;
}

// Done already, but on a rail that has just come back.
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
  peer_.channels().heard(channel_->rail(), channel_->quiet_since());
  uint64_t bytes = 0;
  for (size_t i = 0; i < chain.slices.size(); ++i) {
    peer_.landed(chain.slices[i], channel_->before(i), channel_->after(i));
    bytes += chain.slices[i].bytes;
  }
  channel_->rail().counters.bytes.fetch_add(bytes, std::memory_order_relaxed);
  channel_->rail().counters.pages.fetch_add(
      static_cast<uint64_t>(std::count_if(chain.slices.begin(), chain.slices.end(),
                                          [](const Slice& slice) { return slice.leads(); })),
      std::memory_order_relaxed);
  channel_->release();
}

void Lane::broken() {
  const std::string trouble = channel_->trouble();
  peer_.channels().retire(std::exchange(channel_, nullptr), trouble);
  for (size_t i = chains_count_; i-- > 0;) {
    call_.leave();
    peer_.put_back(chains_[i].slices);
  }
  chains_count_ = 0;
}

void Lane::end() {
  if (waiting_) peer_.channels().stop_waiting(wake_fd_);
  waiting_ = false;
  if (channel_ != nullptr) peer_.channels().give_back(std::exchange(channel_, nullptr));
  finished_ = true;
}

void Lane::break_off() {
  if (!reading()) return;
  channel_->poll();  // we may have slept past the deadline while it came
  silent_ = call_.deadline.passed() && !call_.gate.fenced() &&
            peer_.channels().silent(*channel_, call_.started);
  channel_->break_off();
}

void Lane::abandon() {
  if (!finished_ && chains_count_ != 0) {
    Channel* channel = std::exchange(channel_, nullptr);
    if (silent_) {
      peer_.channels().retire_silent(channel);
    } else {
      peer_.channels().retire(channel, "");
    }
    while (chains_count_ != 0) {
      --chains_count_;
      call_.leave();
    }
  }
  if (!finished_) end();
}

}  // namespace peercached::rdma
