#include "bench/bare_reads.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace peercached::rdma {
namespace {

// The same as for perftest: more would overrun soft-RoCE's receive queue.
constexpr uint64_t kInFlightBytes = 8ull << 20;
constexpr uint64_t kDepthMax = 128;
constexpr int kPollAtOnce = 16;
// If the packets of a READ are lost for good, it ends with an error long before that.
constexpr int kSilenceMaxMs = 30'000;

Registration registered(const Rail& rail, std::span<std::byte> memory, int access) {
  Registration key(Verbs::get().reg_mr(rail.pd(), memory.data(), memory.size(), access));
  if (!key) refused("registering " + std::to_string(memory.size()) + " bytes on " + rail.name());
  return key;
}

}  // namespace

BareReads::BareReads(const End& source_end, const End& reader_end, std::span<std::byte> source,
                     std::span<std::byte> dest, uint32_t read_bytes, unsigned queue_pairs)
    : source_(source),
      dest_(dest),
      read_bytes_(read_bytes),
      depth_(static_cast<unsigned>(std::clamp<uint64_t>(
          kInFlightBytes / std::max<uint64_t>(1, read_bytes) / std::max(1u, queue_pairs), 1,
          kDepthMax))),
      holder_(0, source_end.port, {}, source_end.policy),
      reader_(1, reader_end.port, {}, reader_end.policy) {
  if (read_bytes == 0 || queue_pairs == 0 || source.size() != dest.size() ||
      source.size() < read_bytes) {
    throw std::runtime_error("bare READs of " + std::to_string(read_bytes) + " bytes from " +
                             std::to_string(source.size()) + " to " + std::to_string(dest.size()) +
                             " over " + std::to_string(queue_pairs) + " queue pairs cannot be");
  }
  for (const Rail* rail : {&holder_, &reader_}) {
    if (!rail->up()) throw std::runtime_error(rail->name() + ": " + rail->why_down());
  }
  const Verbs& verbs = Verbs::get();
  source_key_ = registered(holder_, source, IBV_ACCESS_REMOTE_READ);
  dest_key_ = registered(reader_, dest, IBV_ACCESS_LOCAL_WRITE);
  events_ = CompletionEvents(verbs.create_comp_channel(reader_.context()));
  if (!events_) refused("creating a completion channel on " + reader_.name());
  ::fcntl(events_->fd, F_SETFL, O_NONBLOCK);
  queue_ = CompletionQueue(verbs.create_cq(
      reader_.context(), static_cast<int>(depth_ * queue_pairs) + 1, nullptr, events_.get(), 0));
  holder_queue_ = CompletionQueue(verbs.create_cq(holder_.context(), 1, nullptr, nullptr, 0));
  if (!queue_ || !holder_queue_) refused("creating a completion queue on " + reader_.name());
  pairs_.resize(queue_pairs);
  for (Pair& pair : pairs_) connect(pair);
}

void BareReads::connect(Pair& pair) {
  pair.holder = holder_.make_queue_pair(holder_queue_.get(), 1, 1, true);
  pair.reader = reader_.make_queue_pair(queue_.get(), depth_, 1, false);
  const ChannelEnd holder = holder_.describe(*pair.holder.get(), random_psn());
  const ChannelEnd reader = reader_.describe(*pair.reader.get(), random_psn());
  holder_.answer(pair.holder.get(), holder, reader);
  reader_.connect(pair.reader.get(), reader, holder);
}

double BareReads::read(uint64_t count) {
  const TimePoint start = Clock::now();
  uint64_t posted = 0, done = 0;
  for (; posted < std::min<uint64_t>(count, depth_ * pairs_.size()); ++posted) {
    post(posted % pairs_.size());
  }
  TimePoint look_until = Clock::now() + patience_.span();
  while (done != count) {
    ibv_wc ended[kPollAtOnce];
    const int found = ibv_poll_cq(queue_.get(), kPollAtOnce, ended);
    for (int i = 0; i < found; ++i) {
      if (ended[i].status != IBV_WC_SUCCESS) {
        throw std::runtime_error("a bare READ on " + reader_.name() + ": " +
                                 Verbs::get().wc_status_str(ended[i].status));
      }
      ++done;
      if (posted == count) continue;
      post(ended[i].wr_id);
      ++posted;
    }
    if (found == 0 && Clock::now() < look_until) continue;
    if (found == 0) {
      patience_.did_not_pay();
      sleep();
    } else {
      patience_.paid();
    }
    look_until = Clock::now() + patience_.span();
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void BareReads::post(size_t pair) {
  const uint64_t at = next_;
  next_ += read_bytes_;
  if (next_ + read_bytes_ > dest_.size()) next_ = 0;
  ibv_sge piece{reinterpret_cast<uint64_t>(dest_.data()) + at, read_bytes_, dest_key_->lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.wr_id = pair;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(source_.data()) + at;
  request.wr.rdma.rkey = source_key_->rkey;
  const int error = ibv_post_send(pairs_[pair].reader.get(), &request, &bad);
  if (error != 0) throw VerbsError("posting a bare READ on " + reader_.name(), error);
}

// Completions from before arming raise no event. So the first call only arms, and the caller polls
// again.
void BareReads::sleep() {
  if (!armed_) {
    if (ibv_req_notify_cq(queue_.get(), 0) != 0) refused("arming " + reader_.name());
    armed_ = true;
    return;
  }
  pollfd sleeper{events_->fd, POLLIN, 0};
  const int woken = ::poll(&sleeper, 1, kSilenceMaxMs);
  if (woken == 0) throw std::runtime_error("a bare READ on " + reader_.name() + " never ended");
  if (woken < 0) return;  // EINTR
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (Verbs::get().get_cq_event(events_.get(), &queue, &context) == 0) {
    Verbs::get().ack_cq_events(queue, 1);
    armed_ = false;
  }
}

}  // namespace peercached::rdma
