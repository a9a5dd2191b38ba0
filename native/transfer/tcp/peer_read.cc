#include "transfer/tcp/peer_read.h"

#include <algorithm>

#include "common/event_fd.h"

namespace peercached::tcp {
namespace {

// Large chunks make the cost of asking negligible. Small chunks let all lanes of a read end at
// about the same time.
constexpr uint64_t kChunkBytesMin = 256ull << 10;
constexpr uint64_t kChunkBytesMax = 8ull << 20;
constexpr uint64_t kChunksPerLane = 8;

// Whether a record may name this page, and we can receive it over TCP.
bool askable(const ReadOp& op) {
  return op.length != 0 && op.length <= kPageBytesMax && !op.to_device;
}

}  // namespace

void ReadCall::wake_all() const {
  for (int fd : wake_fds) ring(fd);
}

void ReadCall::want_again() {
  if (!again_wanted.exchange(true, std::memory_order_acq_rel) && wake_fds.size() > 1) wake_all();
}

void ReadCall::stop(PageStatus status) {
  PageStatus running = PageStatus::pending;
  if (stopped.compare_exchange_strong(running, status)) wake_all();
}

PeerRead::PeerRead(ReadCall& call, ReadBatch& batch, std::shared_ptr<PeerChannels> channels)
    : call_(call),
      batch_(batch),
      channels_(std::move(channels)),
      received_before_(channels_->counters.received.load(std::memory_order_relaxed)) {
  size_t open = 0;
  for (ReadOp& op : batch_.ops) {
    if (!askable(op)) {
      op.status = PageStatus::error;
      continue;
    }
    op.status = PageStatus::pending;
    bytes_ += op.length;
    ++open;
  }
  unsettled_ = open;
  split_for(1);
}

void PeerRead::split_for(size_t lanes) {
  chunk_bytes_ = std::clamp(bytes_ / (lanes * kChunksPerLane), kChunkBytesMin, kChunkBytesMax);
}

bool PeerRead::claim(std::span<ReadOp>& chunk) {
  MutexLock lock(mutex_);
  if (!again_.empty()) {
    chunk = again_.back();
    again_.pop_back();
    return true;
  }
  const std::span<ReadOp> ops = batch_.ops;
  while (next_ < ops.size() && !askable(ops[next_])) ++next_;
  const size_t first = next_;
  uint64_t chunk_bytes = 0;
  while (next_ < ops.size() && next_ - first < kPagesPerRequestMax) {
    const uint32_t length = ops[next_].length;
    if (!askable(ops[next_])) break;
    if (next_ != first && chunk_bytes + length > chunk_bytes_) break;
    chunk_bytes += length;
    ++next_;
  }
  chunk = ops.subspan(first, next_ - first);
  return !chunk.empty();
}

void PeerRead::put_back(std::span<ReadOp> chunk) {
  MutexLock lock(mutex_);
  again_.push_back(chunk);
}

void PeerRead::settle(std::span<const ReadOp> chunk) {
  const bool again = std::ranges::any_of(chunk, [](const ReadOp& op) {
    return op.status == PageStatus::stale || op.status == PageStatus::error;
  });
  if (again) call_.want_again();
  if (unsettled_.fetch_sub(chunk.size(), std::memory_order_acq_rel) != chunk.size()) return;
  settled_at_.store(Clock::now(), std::memory_order_relaxed);
  // Other threads may be waiting for connections that are no longer needed.
  if (call_.wake_fds.size() > 1) call_.wake_all();
}

void PeerRead::fail(std::span<ReadOp> chunk, PageStatus status) {
  for (ReadOp& op : chunk) {
    if (op.status == PageStatus::pending) op.status = status;
  }
  settle(chunk);
}

TimePoint PeerRead::judged_at() const {
  if (settled()) return call_.deadline.at;
  const TimePoint heard = channels_->counters.last_heard.load(std::memory_order_relaxed);
  return std::max(call_.half, heard + (heard - call_.started));
}

bool PeerRead::gives_nothing() {
  if (given_up_.load(std::memory_order_acquire)) return true;
  if (settled() || Clock::now() < call_.half) return false;
  const std::string why = silence();
  if (why.empty()) return false;
  given_up_.store(true, std::memory_order_release);
  report(why);
  call_.want_again();
  return true;
}

void PeerRead::lane_ends(const Trouble& trouble) {
  const bool last = lanes_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (!last || trouble.empty() || settled()) return;
  failed_.store(true, std::memory_order_release);
  report(trouble);
}

void PeerRead::report(const Trouble& trouble) {
  // A closed peer was dropped on purpose, so nobody needs to hear of it.
  if (trouble.empty() || channels_->closed() || reported_.exchange(true)) return;
  call_.watcher.peer_trouble(batch_.peer, batch_.incarnation, trouble);
}

void PeerRead::finish() {
  // These pages were never asked for: no time was left, or no channel worked.
  PageStatus rest = call_.stopped.load(std::memory_order_acquire);
  if (rest == PageStatus::pending) {
    const bool ended = call_.deadline.passed() || call_.cut.load() || given_up_.load();
    const bool late = ended && !failed_.load(std::memory_order_acquire);
    rest = late ? PageStatus::deadline : PageStatus::error;
  }
  if (bytes_ != 0) {
    channels_->counters.reads.add(std::min(settled_at_.load(), Clock::now()) - call_.started);
  }
  const bool late = channels_->counters.count(batch_.ops, rest);
  if (late && !call_.over()) report(silence());
}

std::string PeerRead::silence() const {
  const PeerCounters& counters = channels_->counters;
  const std::string silent = counters.silence(call_.started);
  return silent.empty() ? counters.dribble(call_.started, received_before_) : silent;
}

}  // namespace peercached::tcp
