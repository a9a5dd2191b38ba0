#include "transfer/routed/routed_engine.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <thread>
#include <unordered_set>

#include "common/mutex.h"

namespace peercached {
namespace {

class RoutedEngine final : public TransferEngine {
 public:
  RoutedEngine(std::unique_ptr<TransferEngine> tcp, rdma::RdmaEngine& rdma, WithoutRails without,
               RoutedCounters& counters)
      : tcp_(std::move(tcp)), rdma_(rdma), without_(without), counters_(counters) {}

  void add_peer(HolderIndex peer, const PeerEndpoint& endpoint) override {
    tcp_->add_peer(peer, endpoint);
    rdma_.add_peer(peer, endpoint);
    WriterLock lock(mutex_);
    fell_back(peer, false);
    if (endpoint.rails == 0) {
      with_rails_.erase(peer);
    } else {
      with_rails_.insert(peer);
    }
  }

  void drop_peer(HolderIndex peer) override {
    {
      WriterLock lock(mutex_);
      with_rails_.erase(peer);
      fell_back(peer, false);
    }
    tcp_->drop_peer(peer);
    rdma_.drop_peer(peer);
  }

  void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
            PageSink& sink) override {
    std::vector<ReadBatch> by_tcp, by_rdma;
    for (const ReadBatch& batch : batches) {
      const bool tcp = takes_tcp(batch.peer);
      (tcp ? by_tcp : by_rdma).push_back(batch);
      for (ReadOp& op : batch.ops) op.one_sided = !tcp;
    }
    if (by_tcp.empty() || by_rdma.empty()) {
      if (!by_tcp.empty()) tcp_->read(by_tcp, deadline, gate, sink);
      if (!by_rdma.empty()) read_by_rdma(by_rdma, deadline, gate, sink);
      return;
    }
    // In parallel, so that neither uses up the other's time.
    const auto read_by_tcp = [&] { tcp_->read(by_tcp, deadline, gate, sink); };
    std::jthread other;
    try {
      other = std::jthread(read_by_tcp);
    } catch (const std::system_error&) {
      // No thread available: read one after the other, in the remaining time.
    }
    read_by_rdma(by_rdma, deadline, gate, sink);
    if (!other.joinable()) read_by_tcp();
  }

  std::vector<PeerHealth> health() const override {
    std::map<HolderIndex, PeerHealth> all;
    for (const PeerHealth& one : tcp_->health()) all[one.peer] = one;
    for (const PeerHealth& one : rdma_.health()) {
      PeerHealth& sum = all[one.peer];
      sum.peer = one.peer;
      sum.rdma = true;
      sum.channels += one.channels;
      sum.pages += one.pages;
      sum.bytes += one.bytes;
      sum.errors += one.errors;
      sum.deadlines += one.deadlines;
      sum.corrupt += one.corrupt;
    }
    std::vector<PeerHealth> list;
    for (const auto& [peer, one] : all) list.push_back(one);
    return list;
  }

  const char* name() const override { return "rdma"; }

 private:
  // With WithoutRails::use_tcp, pages that failed on all rails are read over TCP in the remaining
  // time.
  void read_by_rdma(std::vector<ReadBatch>& batches, Deadline deadline, WriteGate& gate,
                    PageSink& sink) {
    rdma_.read(batches, deadline, gate, sink);
    if (without_ == WithoutRails::fail) return;
    std::vector<ReadOp> again;
    std::vector<ReadOp*> of_op;
    for (const ReadBatch& batch : batches) {
      for (ReadOp& op : batch.ops) {
        if (!left_over(op)) continue;
        of_op.push_back(&op);
        again.push_back(op);
        again.back().one_sided = false;
        again.back().status = PageStatus::pending;
      }
    }
    if (again.empty() || deadline.passed() || gate.fenced()) return;
    std::vector<ReadBatch> by_tcp;
    std::span<ReadOp> rest(again);
    for (const ReadBatch& batch : batches) {
      const auto count =
          static_cast<size_t>(std::count_if(batch.ops.begin(), batch.ops.end(), left_over));
      if (count == 0) continue;
      by_tcp.push_back({batch.peer, batch.incarnation, rest.first(count)});
      rest = rest.subspan(count);
      counters_.fallback_reads.fetch_add(1, std::memory_order_relaxed);
    }
    tcp_->read(by_tcp, deadline, gate, sink);
    for (size_t i = 0; i < again.size(); ++i) *of_op[i] = again[i];
  }

  // Only RDMA can write device memory.
  static bool left_over(const ReadOp& op) {
    return op.status == PageStatus::error && !op.to_device;
  }

  bool takes_tcp(HolderIndex peer) {
    bool fell_before;
    {
      ReaderLock lock(mutex_);
      if (!with_rails_.contains(peer)) return true;
      fell_before = fallen_.contains(peer);
    }
    if (without_ == WithoutRails::fail) return false;
    const bool falls = !rdma_.reaches(peer);
    if (falls) counters_.fallback_reads.fetch_add(1, std::memory_order_relaxed);
    if (falls != fell_before) {
      WriterLock lock(mutex_);
      fell_back(peer, falls && with_rails_.contains(peer));
    }
    return falls;
  }

  void fell_back(HolderIndex peer, bool falls) REQUIRES(mutex_) {
    if (falls) {
      fallen_.insert(peer);
    } else {
      fallen_.erase(peer);
    }
    counters_.fallback_peers.store(fallen_.size(), std::memory_order_relaxed);
  }

  const std::unique_ptr<TransferEngine> tcp_;
  rdma::RdmaEngine& rdma_;
  const WithoutRails without_;
  RoutedCounters& counters_;
  mutable SharedMutex mutex_;
  std::unordered_set<HolderIndex> with_rails_ GUARDED_BY(mutex_);
  // Those of with_rails_ whose last read went over TCP.
  std::unordered_set<HolderIndex> fallen_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<TransferEngine> make_routed_engine(std::unique_ptr<TransferEngine> tcp,
                                                   rdma::RdmaEngine& rdma, WithoutRails without,
                                                   RoutedCounters& counters) {
  return std::make_unique<RoutedEngine>(std::move(tcp), rdma, without, counters);
}

}  // namespace peercached
