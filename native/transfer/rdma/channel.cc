#include "transfer/rdma/channel.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <thread>

#include "common/error_text.h"

namespace peercached::rdma {
namespace {

// Requests per slice: at most two for the payload (it crosses at most one chunk boundary) and one
// for a header that ends a chunk. One more reads the header again. unpack_answer() refuses chunks
// smaller than a slice.
constexpr unsigned kRequestsPerDoorbell = 3 * kChainSlicesMax;
constexpr unsigned kRequestsPerChain = kRequestsPerDoorbell + kChainSlicesMax;
constexpr unsigned kSendsMax = kRequestsPerChain * kChainsPerChannel;
// A queue pair in state ERROR flushes its work within microseconds. If it takes longer than this,
// it is destroyed, which waits for the device.
constexpr int kDrainMs = 100;
// The lowest bit of a doorbell's number tells its purpose.
constexpr uint64_t kPayload = 0, kProof = 1;
constexpr unsigned kEventsPerAcknowledgement = 64;
// The size of ask()'s larger READ: many packets of the largest MTU.
constexpr uint64_t kAskedBytes = 64 << 10;

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

}  // namespace

Channel::Channel(Rail& rail, uint32_t number) : rail_(rail) {
  const Verbs& verbs = Verbs::get();
  scratch_ = std::make_unique<Scratch[]>(kChainsPerChannel);
  scratch_key_ = Registration(verbs.reg_mr(
      rail.pd(), scratch_.get(), sizeof(Scratch) * kChainsPerChannel, IBV_ACCESS_LOCAL_WRITE));
  if (!scratch_key_) refused("registering scratch memory on " + rail.name());
  events_ = CompletionEvents(verbs.create_comp_channel(rail.context()));
  if (!events_) refused("creating a completion channel on " + rail.name());
  ::fcntl(events_->fd, F_SETFL, ::fcntl(events_->fd, F_GETFL) | O_NONBLOCK);
  // Room for a completion of every request: in state ERROR, unsignalled ones complete, too.
  queue_ =
      CompletionQueue(verbs.create_cq(rail.context(), kSendsMax + 1, nullptr, events_.get(), 0));
  if (!queue_) refused("creating a completion queue on " + rail.name());
  qp_ = rail.make_queue_pair(queue_.get(), kSendsMax, kPiecesMax, false);
  own_ = rail.describe(*qp_.get(), random_psn());
  own_.channel = number;
  rail_.counters.channels.fetch_add(1, std::memory_order_relaxed);
}

Channel::~Channel() {
  rail_.counters.channels.fetch_sub(1, std::memory_order_relaxed);
  if (unacknowledged_ != 0) Verbs::get().ack_cq_events(queue_.get(), unacknowledged_);
}

void Channel::connect(ChannelAnswer holder) {
  rail_.connect(qp_.get(), own_, holder.end);
  holder_ = std::move(holder);
  connected_at_ = Clock::now();
}

// Collects work requests, to post them together.
class Channel::Requests {
 public:
  // Starts a READ at `address` of the holder's memory, into the pieces that into() adds.
  ibv_send_wr& read(uint64_t address, uint32_t rkey) {
    ibv_send_wr& request = requests_[count_++];
    request = {};
    request.opcode = IBV_WR_RDMA_READ;
    request.next = &request + 1;
    request.sg_list = &pieces_[pieces_count_];
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = rkey;
    return request;
  }
  void into(const void* memory, uint32_t bytes, uint32_t lkey) {
    pieces_[pieces_count_++] = {address_of(memory), bytes, lkey};
    ++requests_[count_ - 1].num_sge;
  }
  ibv_send_wr* first() { return requests_.data(); }
  ibv_send_wr& last() { return requests_[count_ - 1]; }

 private:
  std::array<ibv_send_wr, kRequestsPerDoorbell> requests_;
  std::array<ibv_sge, kPiecesMax * kRequestsPerDoorbell> pieces_;
  size_t count_ = 0, pieces_count_ = 0;
};

bool Channel::has_keys(std::span<const Slice> slices, std::span<const ReadOp> ops) const {
  const PoolAccess& pool = holder_.pool;
  return std::all_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    const uint64_t slot = ops[slice.op].offset, from = slot + sizeof(SlotHeader) + slice.at;
    const auto has = [&](uint64_t offset) { return pool.rkeys[offset / pool.chunk_bytes] != 0; };
    return has(slot) && has(from) && has(from + slice.bytes - 1);
  });
}

void Channel::post(std::span<const Slice> slices, std::span<const ReadOp> ops,
                   RegisteredMemory& memory) {
  assert(room() && !slices.empty() && slices.size() <= kChainSlicesMax);
  const PoolAccess& pool = holder_.pool;
  const auto rkey_at = [&](uint64_t offset) { return pool.rkeys[offset / pool.chunk_bytes]; };
  Scratch& scratch = scratch_of(posted_);
  Proof& proof = proof_of(posted_);
  proof.count = slices.size();
  Requests requests;

  for (size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    const ReadOp& op = ops[slice.op];
    std::byte* dest = op.dest + slice.at;
    uint64_t from = op.offset + sizeof(SlotHeader) + slice.at;
    uint32_t left = slice.bytes;
    bool header_too = slice.leads();
    proof.headers[i] = {pool.address + op.offset, rkey_at(op.offset)};
    while (left != 0) {
      // One request per chunk of the holder's registration: at most two, since slices are small.
      const auto bytes = static_cast<uint32_t>(
          std::min<uint64_t>(left, pool.chunk_bytes - from % pool.chunk_bytes));
      const uint64_t start = header_too ? op.offset : from;
      // Slots and chunks are aligned, so no header crosses a chunk boundary.
      requests.read(pool.address + start, rkey_at(start));
      if (header_too) {
        scratch.before[i] = {};
        requests.into(&scratch.before[i], sizeof(SlotHeader), scratch_key_->lkey);
        header_too = false;
        if (from % pool.chunk_bytes == 0) continue;
      }
      for (uint32_t rest = bytes; rest != 0;) {
        const ibv_mr* key = memory.key(rail_, dest);
        const auto here = static_cast<uint32_t>(
            std::min<uint64_t>(rest, static_cast<uint64_t>(memory.chunk_end(dest) - dest)));
        requests.into(dest, here, key->lkey);
        dest += here;
        rest -= here;
      }
      from += bytes;
      left -= bytes;
    }
  }
  if (outstanding() == 0) quiet_since_ = Clock::now();
  ring(requests, kPayload);
  ++posted_;
}

void Channel::ask() {
  const PoolAccess& pool = holder_.pool;
  const uint64_t bytes = std::min({kAskedBytes, pool.bytes, pool.chunk_bytes});
  asked_for_ = std::make_unique<std::byte[]>(bytes);
  asked_key_ = Registration(
      Verbs::get().reg_mr(rail_.pd(), asked_for_.get(), bytes, IBV_ACCESS_LOCAL_WRITE));
  if (!asked_key_) refused("registering " + std::to_string(bytes) + " bytes on " + rail_.name());
  asked_at_ = quiet_since_ = Clock::now();
  for (const uint64_t asked : {uint64_t{sizeof(SlotHeader)}, bytes}) {
    Requests requests;
    requests.read(pool.address, pool.rkeys.at(0));
    requests.into(asked_for_.get(), static_cast<uint32_t>(asked), asked_key_->lkey);
    ring(requests, kProof);
    ++posted_;
    ++landed_;
  }
}

bool Channel::answered() {
  for (size_t came = poll(); came != 0; --came) release();
  if (outstanding() != 0) return false;
  asked_key_.reset();
  asked_for_.reset();
  return true;
}

std::string Channel::no_proof() const {
  if (trouble_.empty() && outstanding() == 0) return rail_.name() + ": answers come too late";
  if (released_ != 0) {
    return rail_.name() + ": READs of " + std::to_string(sizeof(SlotHeader)) +
           " bytes pass and those of " + std::to_string(kAskedBytes) +
           " do not: look for a link with a smaller MTU, and for lost packets";
  }
  return trouble_.empty() ? rail_.name() + ": still no answer" : trouble_;
}

void Channel::post_proof(uint64_t chain) {
  const Proof& proof = proof_of(chain);
  Scratch& scratch = scratch_of(chain);
  Requests requests;
  for (size_t i = 0; i < proof.count; ++i) {
    requests.read(proof.headers[i].address, proof.headers[i].rkey);
    scratch.after[i] = {};
    requests.into(&scratch.after[i], sizeof(SlotHeader), scratch_key_->lkey);
  }
  ring(requests, kProof);
}

void Channel::ring(Requests& requests, uint64_t what) {
  requests.last().next = nullptr;
  requests.last().send_flags = IBV_SEND_SIGNALED;
  rung_ = (rung_ & ~kProof) + 2 + what;
  requests.last().wr_id = rung_;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_.get(), requests.first(), &bad);
  // Some requests may be posted already, so the channel must be fenced.
  if (error != 0) trouble_ = "posting to " + rail_.name() + ": " + error_text(error);
}

size_t Channel::poll() {
  std::array<ibv_wc, kChainsPerChannel> done;
  size_t ended = 0;
  while (trouble_.empty()) {
    const int count = ibv_poll_cq(queue_.get(), static_cast<int>(done.size()), done.data());
    if (count < 0) trouble_ = "polling " + rail_.name() + " failed";
    if (count <= 0) break;
    quiet_since_ = Clock::now();
    for (int i = 0; i < count; ++i) {
      const ibv_wc& one = done[static_cast<size_t>(i)];
      if (one.status != IBV_WC_SUCCESS && trouble_.empty()) {
        trouble_ = rail_.name() + ": " + Verbs::get().wc_status_str(one.status);
        unanswered_ = one.status == IBV_WC_RETRY_EXC_ERR;
      }
      if (!trouble_.empty()) {  // fence() waits for the last doorbell
        if (one.wr_id != 0) gave_up_ = one.wr_id;
      } else if ((one.wr_id & kProof) != 0) {
        ++completed_;
        ++ended;
      } else {
        post_proof(landed_++);
      }
    }
  }
  return ended;
}

void Channel::arm() {
  if (armed_) return;
  armed_ = ibv_req_notify_cq(queue_.get(), 0) == 0;
}

void Channel::take_events() {
  const Verbs& verbs = Verbs::get();
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (verbs.get_cq_event(events_.get(), &queue, &context) == 0) {
    ++unacknowledged_;
    armed_ = false;
  }
  if (unacknowledged_ < kEventsPerAcknowledgement) return;
  verbs.ack_cq_events(queue_.get(), unacknowledged_);
  unacknowledged_ = 0;
}

void Channel::break_off() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  Verbs::get().modify_qp(qp_.get(), &attr, IBV_QP_STATE);
}

void Channel::fence() {
  if (!qp_) return;
  if (outstanding() != 0 || !trouble_.empty()) {
    break_off();
    // The last request of the last doorbell is signalled, and it is flushed last.
    const Deadline enough = Deadline::after_ms(kDrainMs);
    while (gave_up_ != rung_ && !enough.passed()) {
      ibv_wc one;
      const int count = ibv_poll_cq(queue_.get(), 1, &one);
      if (count < 0) break;
      if (count == 0) std::this_thread::yield();
      if (count == 1 && one.wr_id != 0) gave_up_ = one.wr_id;
    }
  }
  qp_.reset();
  completed_ = posted_;
  if (trouble_.empty()) trouble_ = "given up";
}

}  // namespace peercached::rdma
