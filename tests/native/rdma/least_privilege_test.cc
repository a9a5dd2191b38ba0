// The limits of a peer that has all keys, over soft-RoCE.
#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

using rdma::ChannelEnd;
using rdma::Verbs;

// A queue pair that follows no rules.
class Intruder {
 public:
  explicit Intruder(const rdma::Rail& rail) : rail_(rail) {
    queue_ = rdma::CompletionQueue(Verbs::get().create_cq(rail.context(), 4, nullptr, nullptr, 0));
    qp_ = rail.make_queue_pair(queue_.get(), 4, 1, false);
    own_ = rail.describe(*qp_.get(), rdma::random_psn());
    own_.channel = own_.qpn;  // a fresh channel number
    key_ = rdma::Registration(
        Verbs::get().reg_mr(rail.pd(), bytes_.data(), bytes_.size(), IBV_ACCESS_LOCAL_WRITE));
  }
  const ChannelEnd& own() const { return own_; }
  void connect(const ChannelEnd& holder) { rail_.connect(qp_.get(), own_, holder); }

  ibv_wc_status does(ibv_wr_opcode what, uint64_t address, uint32_t rkey) {
    ibv_sge piece{reinterpret_cast<uint64_t>(bytes_.data()), 64, key_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.opcode = what;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = rkey;
    EXPECT_EQ(ibv_post_send(qp_.get(), &request, &bad), 0);
    ibv_wc done{};
    EXPECT_TRUE(eventually([&] { return ibv_poll_cq(queue_.get(), 1, &done) == 1; }));
    return done.status;
  }

 private:
  const rdma::Rail& rail_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64, std::byte{0x66});
  rdma::Registration key_;
  rdma::CompletionQueue queue_;
  rdma::QueuePair qp_;
  ChannelEnd own_;
};

// A queue pair on `rail` that permits all access. Only the registrations still protect the memory.
class OpenEnd {
 public:
  OpenEnd(const rdma::Rail& rail, const ChannelEnd& other) {
    queue_ = rdma::CompletionQueue(Verbs::get().create_cq(rail.context(), 4, nullptr, nullptr, 0));
    qp_ = rail.make_queue_pair(queue_.get(), 1, 1, true);
    ibv_qp_attr all{};
    all.qp_state = IBV_QPS_INIT;
    all.port_num = static_cast<uint8_t>(rail.port.number);
    all.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    EXPECT_EQ(
        Verbs::get().modify_qp(
            qp_.get(), &all, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
    end = rail.describe(*qp_.get(), rdma::random_psn());
    rail.answer(qp_.get(), end, other);
  }
  ChannelEnd end;

 private:
  rdma::CompletionQueue queue_;
  rdma::QueuePair qp_;
};

class RdmaLeastPrivilege : public ::testing::Test {
 protected:
  RdmaLeastPrivilege() : holder(64 << 20, {"rxe0"}), other(1 << 20, {"rxe1"}) {}
  RdmaHolder holder, other;
};

TEST_F(RdmaLeastPrivilege, AChannelReadsThePoolAndWritesNothing) {
  const RecordRow row = holder.set(0, 5000);
  const std::byte* slot = holder.pool.base() + row.offset;
  const std::vector<std::byte> then(slot, slot + 5000);
  for (const ibv_wr_opcode what : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Intruder intruder(*other.fabric.rails()[0]);
    const auto answer =
        holder.fabric.responder().accept("reader", kReaderIncarnation, intruder.own(), {});
    intruder.connect(answer.end);
    const auto status =
        intruder.does(what, answer.pool.address + row.offset, answer.pool.rkeys.at(0));
    EXPECT_EQ(status == IBV_WC_SUCCESS, what == IBV_WR_RDMA_READ) << status;
  }
  EXPECT_EQ(std::memcmp(slot, then.data(), then.size()), 0);
}

TEST_F(RdmaLeastPrivilege, ChannelCannotWriteEvenToWritableRegistrations) {
  std::vector<std::byte> memory(4096, kPaint);
  const rdma::Registration writable(
      Verbs::get().reg_mr(holder.fabric.rails()[0]->pd(), memory.data(), memory.size(),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  Intruder intruder(*other.fabric.rails()[0]);
  const auto answer =
      holder.fabric.responder().accept("reader", kReaderIncarnation, intruder.own(), {});
  intruder.connect(answer.end);
  EXPECT_NE(
      intruder.does(IBV_WR_RDMA_WRITE, reinterpret_cast<uint64_t>(memory.data()), writable->rkey),
      IBV_WC_SUCCESS);
  EXPECT_TRUE(is_painted(memory.data(), memory.size()));
}

TEST_F(RdmaLeastPrivilege, PoolKeysAllowReadsOnly) {
  rdma::RegisteredMemory again(holder.fabric.rails(), holder.pool.base(), 1 << 20,
                               rdma::Purpose::publish);
  again.register_until(Deadline::after_ms(10'000));
  const uint32_t rkey = again.remote_keys(*holder.fabric.rails()[0]).at(0);
  for (const ibv_wr_opcode what : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Intruder intruder(*other.fabric.rails()[0]);
    OpenEnd open(*holder.fabric.rails()[0], intruder.own());
    intruder.connect(open.end);
    const auto status = intruder.does(what, reinterpret_cast<uint64_t>(holder.pool.base()), rkey);
    EXPECT_EQ(status == IBV_WC_SUCCESS, what == IBV_WR_RDMA_READ) << status;
  }
}

TEST_F(RdmaLeastPrivilege, AWorkersRegionIsNeverRemotelyAccessible) {
  std::vector<std::byte> region(1 << 20, kPaint);
  rdma::MemoryTable& regions = holder.fabric.regions();
  regions.add(region.data(), region.size());
  const rdma::Rail& rail = *holder.fabric.rails()[0];
  const auto registered = regions.find(region.data());
  ASSERT_TRUE(registered->ready(rail, region.data(), 64, Deadline::after_ms(10'000)));
  const uint32_t rkey = registered->key(rail, region.data())->rkey;
  for (const ibv_wr_opcode what : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Intruder intruder(*other.fabric.rails()[0]);
    OpenEnd open(rail, intruder.own());
    intruder.connect(open.end);
    EXPECT_NE(intruder.does(what, reinterpret_cast<uint64_t>(region.data()), rkey), IBV_WC_SUCCESS);
  }
  regions.remove(region.data());
  EXPECT_TRUE(is_painted(region.data(), region.size()));
}

TEST_F(RdmaLeastPrivilege, ReadersEndRefusesRemoteReads) {
  // The reader's queue pair grants no remote access, so the pool's keys do not work there.
  rdma::Channel channel(*holder.fabric.rails()[0], 1);
  Intruder intruder(*other.fabric.rails()[0]);
  channel.connect({intruder.own(), {}});
  intruder.connect(channel.own_end());
  const auto answer = holder.fabric.responder().accept("x", 1, intruder.own(), {});
  EXPECT_NE(intruder.does(IBV_WR_RDMA_READ, answer.pool.address, answer.pool.rkeys.at(0)),
            IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace peercached::testing
