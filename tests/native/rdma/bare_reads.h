// READs of one size over one queue pair with nothing around them, as ib_read_bw makes them: what
// the engine is compared with in the same moment.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <cstdlib>

#include "rdma/rdma_fixture.h"

namespace peercached::testing {

class BareReads {
 public:
  // From the start of the holder's pool, into one buffer, on the reader's first rail.
  BareReads(RdmaReader& reader, RdmaHolder& holder, uint32_t bytes)
      : bytes_(bytes), depth_(std::clamp<unsigned>(kInFlightBytes / bytes, 2, kDepthMax)) {
    const rdma::Verbs& verbs = rdma::Verbs::get();
    const rdma::Rail& rail = *reader.fabric.rails()[0];
    memory_.resize(uint64_t{depth_} * bytes);
    key_ = rdma::Registration(
        verbs.reg_mr(rail.pd(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE));
    events_ = rdma::CompletionEvents(verbs.create_comp_channel(rail.context()));
    if (!key_ || !events_) std::abort();
    ::fcntl(events_->fd, F_SETFL, O_NONBLOCK);
    queue_ = rdma::CompletionQueue(
        verbs.create_cq(rail.context(), static_cast<int>(depth_) + 1, nullptr, events_.get(), 0));
    qp_ = rail.make_queue_pair(queue_.get(), depth_, 1, false);
    rdma::ChannelEnd own = rail.describe(*qp_.get(), rdma::random_psn());
    own.channel = 1u << 30;  // none of the engine's numbers
    holder_ = holder.fabric.responder().accept("bare", kReaderIncarnation, own, {});
    rail.connect(qp_.get(), own, holder_.end);
  }

  double gigabytes_per_second(double seconds) {
    const TimePoint start = Clock::now();
    const auto end =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    uint64_t done = 0;
    unsigned out = 0;
    for (unsigned i = 0; i < depth_; ++i, ++out) post(i);
    while (out != 0) {
      ibv_wc ended[16];
      const int count = ibv_poll_cq(queue_.get(), 16, ended);
      for (int i = 0; i < count; ++i) {
        if (ended[i].status != IBV_WC_SUCCESS) std::abort();
        ++done;
        --out;
        if (Clock::now() >= end) continue;
        post(static_cast<unsigned>(ended[i].wr_id));
        ++out;
      }
      if (count == 0) sleep();
    }
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    return static_cast<double>(done * bytes_) / 1e9 / took;
  }

 private:
  // As perftest in its soft-RoCE runs: more overruns the receive queue.
  static constexpr uint64_t kInFlightBytes = 8ull << 20;
  static constexpr unsigned kDepthMax = 128;

  void post(unsigned place) {
    ibv_sge piece{reinterpret_cast<uint64_t>(memory_.data()) + uint64_t{place} * bytes_, bytes_,
                  key_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.wr_id = place;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = holder_.pool.address + uint64_t{place} * bytes_;
    request.wr.rdma.rkey = holder_.pool.rkeys[0];
    if (ibv_post_send(qp_.get(), &request, &bad) != 0) std::abort();
  }

  // What completed before it was armed is not announced: so the first call only arms.
  void sleep() {
    if (!armed_) {
      if (ibv_req_notify_cq(queue_.get(), 0) != 0) std::abort();
      armed_ = true;
      return;
    }
    pollfd sleeper{events_->fd, POLLIN, 0};
    if (::poll(&sleeper, 1, -1) <= 0) return;
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (rdma::Verbs::get().get_cq_event(events_.get(), &queue, &context) == 0) {
      rdma::Verbs::get().ack_cq_events(queue, 1);
      armed_ = false;
    }
  }

  const uint32_t bytes_;
  const unsigned depth_;
  std::vector<std::byte> memory_;
  rdma::Registration key_;
  rdma::CompletionEvents events_;
  rdma::CompletionQueue queue_;
  rdma::QueuePair qp_;
  rdma::ChannelAnswer holder_;
  bool armed_ = false;
};

}  // namespace peercached::testing
