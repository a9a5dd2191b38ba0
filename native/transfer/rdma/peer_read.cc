#include "transfer/rdma/peer_read.h"

#include <algorithm>
#include <cstring>

namespace peercached::rdma {
namespace {

constexpr uint32_t kSliceBytesMin = 256u << 10;
constexpr uint32_t kSliceBytesMax = 1u << 20;
static_assert(kSliceBytesMax <= kChunkAlign);
constexpr uint64_t kChainBytesMin = 256ull << 10;
constexpr uint64_t kChainsPerLane = 4;
constexpr uint8_t kAttemptsMax = 3;

}  // namespace

PeerRead::PeerRead(ReadCall& call, ReadBatch& batch, std::shared_ptr<PeerChannels> channels)
    : call_(call), batch_(batch), channels_(std::move(channels)), progress_(batch.ops.size()) {
  region_of_.resize(batch_.ops.size());
  for (size_t i = 0; i < batch_.ops.size(); ++i) {
    ReadOp& op = batch_.ops[i];
    to_device_ |= op.to_device;
    // No record names an empty page. Nobody may write to memory outside a region.
    op.status = PageStatus::error;
    if (op.length == 0 || op.length > kPageBytesMax) continue;
    for (const auto& known : regions_) {
      if (op.dest >= known->base() && op.dest < known->base() + known->bytes()) {
        region_of_[i] = known.get();
      }
    }
    if (region_of_[i] == nullptr) {
      auto found = call_.memory.find(op.dest);
      if (!found) continue;
      region_of_[i] = regions_.emplace_back(std::move(found)).get();
    }
    const RegisteredMemory& region = *region_of_[i];
    if (op.length > static_cast<uint64_t>(region.base() + region.bytes() - op.dest)) continue;
    op.status = PageStatus::pending;
    bytes_ += op.length;
    ++unsettled_;
  }
}

void PeerRead::register_all(std::span<const std::unique_ptr<Rail>> rails) {
  for (size_t i = 0; i < batch_.ops.size(); ++i) {
    const ReadOp& op = batch_.ops[i];
    if (op.status != PageStatus::pending || region_of_[i]->complete()) continue;
    for (const auto& rail : rails) {
      // If this fails, it fails again when a lane needs the chunk, and then fails the page.
      if (rail->up()) (void)region_of_[i]->ready(*rail, op.dest, op.length, call_.deadline);
    }
  }
}

void PeerRead::split_for(size_t lanes) {
  const uint64_t share = bytes_ / std::max<size_t>(lanes, 1);
  slice_bytes_ =
      static_cast<uint32_t>(std::clamp<uint64_t>(share / 2, kSliceBytesMin, kSliceBytesMax));
  chain_bytes_ = std::clamp(share / kChainsPerLane, kChainBytesMin, kChainBytes);
  for (size_t i = batch_.ops.size(); i-- > 0;) {
    const ReadOp& op = batch_.ops[i];
    if (op.status != PageStatus::pending) continue;
    const uint32_t count = (op.length + slice_bytes_ - 1) / slice_bytes_;
    progress_[i].slices_left = count;
    for (uint32_t slice = count; slice-- > 0;) {
      const uint32_t at = slice * slice_bytes_;
      todo_.push_back({static_cast<uint32_t>(i), at, std::min(slice_bytes_, op.length - at), 0});
    }
  }
}

RegisteredMemory* PeerRead::claim(uint64_t pool_bytes, std::vector<Slice>& slices) {
  slices.clear();
  RegisteredMemory* region = nullptr;
  uint64_t bytes = 0;
  while (!todo_.empty() && slices.size() < kChainSlicesMax) {
    const Slice slice = todo_.back();
    const ReadOp& op = batch_.ops[slice.op];
    if (op.status != PageStatus::pending) {  // another slice of the page failed
      todo_.pop_back();
      continue;
    }
    const uint64_t slot_bytes = sizeof(SlotHeader) + op.length;
    if (op.offset % sizeof(SlotHeader) != 0 || op.offset >= pool_bytes ||
        slot_bytes > pool_bytes - op.offset) {
      todo_.pop_back();
      fail(slice, PageStatus::stale);  // the record names no slot of the pool
      continue;
    }
    if (!slices.empty() && (bytes + slice.bytes > chain_bytes_ || region_of_[slice.op] != region)) {
      break;
    }
    region = region_of_[slice.op];
    bytes += slice.bytes;
    slices.push_back(slice);
    todo_.pop_back();
  }
  return region;
}

void PeerRead::landed(const Slice& slice, const SlotHeader& before, const SlotHeader& after) {
  ReadOp& op = batch_.ops[slice.op];
  if (op.status != PageStatus::pending) return;
  Progress& progress = progress_[slice.op];
  if (slice.leads()) op.header = before;
  if (!progress.seen) {
    op.again = after;
    progress.seen = true;
  } else if (std::memcmp(&op.again, &after, sizeof after) != 0) {
    op.again = {};  // the two looks differ: an empty header matches no page
  }
  if (--progress.slices_left != 0) return;
  one_settled();
  call_.sink.landed(batch_, op);
}

void PeerRead::put_back(std::span<const Slice> slices, bool broke) {
  for (size_t i = slices.size(); i-- > 0;) {
    Slice slice = slices[i];
    if (broke && ++slice.attempts >= kAttemptsMax) {
      fail(slice, PageStatus::error);
    } else {
      todo_.push_back(slice);
    }
  }
}

void PeerRead::fail(const Slice& slice, PageStatus status) {
  ReadOp& op = batch_.ops[slice.op];
  if (op.status != PageStatus::pending) return;
  op.status = status;
  one_settled();
}

void PeerRead::one_settled() {
  if (--unsettled_ == 0) settled_at_ = Clock::now();
}

void PeerRead::finish() {
  PageStatus rest = call_.stopped;
  if (rest == PageStatus::pending) {
    rest = call_.deadline.passed() && !gave_up_ ? PageStatus::deadline : PageStatus::error;
  }
  if (bytes_ != 0) {
    channels_->counters.reads.add(std::min(settled_at_, Clock::now()) - call_.started);
  }
  channels_->counters.count(batch_.ops, rest);
}

}  // namespace peercached::rdma
