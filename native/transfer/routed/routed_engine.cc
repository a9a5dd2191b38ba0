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
  RoutedEngine(Transport& preferred, std::unique_ptr<TransferEngine> other, Unreached unreached,
               RoutedCounters& counters)
      : preferred_(preferred),
        other_(std::move(other)),
        unreached_(unreached),
        counters_(counters) {}

  void add_peer(HolderIndex peer, const PeerEndpoint& endpoint) override {
    other_->add_peer(peer, endpoint);
    preferred_.add_peer(peer, endpoint);
    WriterLock lock(mutex_);
    fell_back(peer, false);
    if (preferred_.offered_by(endpoint)) {
      offering_.insert(peer);
    } else {
      offering_.erase(peer);
    }
  }

  void drop_peer(HolderIndex peer) override {
    {
      WriterLock lock(mutex_);
      offering_.erase(peer);
      fell_back(peer, false);
    }
    other_->drop_peer(peer);
    preferred_.drop_peer(peer);
  }

  void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
            PageSink& sink) override {
    std::vector<ReadBatch> by_other, by_preferred;
    for (const ReadBatch& batch : batches) {
      const bool other = takes_other(batch.peer);
      (other ? by_other : by_preferred).push_back(batch);
      for (ReadOp& op : batch.ops) op.one_sided = !other && preferred_.one_sided();
    }
    if (by_other.empty() || by_preferred.empty()) {
      if (!by_other.empty()) other_->read(by_other, deadline, gate, sink);
      if (!by_preferred.empty()) read_by_preferred(by_preferred, deadline, gate, sink);
      return;
    }
    // In parallel, so that neither uses up the other's time.
    const auto read_by_other = [&] { other_->read(by_other, deadline, gate, sink); };
    std::jthread second;
    try {
      second = std::jthread(read_by_other);
    } catch (const std::system_error&) {
      // No thread available: read one after the other, in the remaining time.
    }
    read_by_preferred(by_preferred, deadline, gate, sink);
    if (!second.joinable()) read_by_other();
  }

  std::vector<PeerHealth> health() const override {
    std::map<HolderIndex, PeerHealth> all;
    for (const PeerHealth& one : other_->health()) all[one.peer] = one;
    for (const PeerHealth& one : preferred_.health()) {
      PeerHealth& sum = all[one.peer];
      sum.peer = one.peer;
      sum.transport = one.transport;
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

  const char* name() const override { return preferred_.name(); }

  void hold(std::span<HoldBatch> batches, uint32_t hold_ms, Deadline deadline) override {
    other_->hold(batches, hold_ms, deadline);
  }
  void lookup(std::span<LookupBatch> batches, uint64_t view_number, Deadline deadline) override {
    other_->lookup(batches, view_number, deadline);
  }
  void push(std::span<PushBatch> batches, Deadline deadline) override {
    other_->push(batches, deadline);
  }

 private:
  // With Unreached::use_other, pages that failed are read over the other in the remaining time.
  void read_by_preferred(std::vector<ReadBatch>& batches, Deadline deadline, WriteGate& gate,
                         PageSink& sink) {
    preferred_.read(batches, deadline, gate, sink);
    if (unreached_ == Unreached::fail) return;
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
    std::vector<ReadBatch> by_other;
    std::span<ReadOp> left(again);
    for (const ReadBatch& batch : batches) {
      const auto count =
          static_cast<size_t>(std::count_if(batch.ops.begin(), batch.ops.end(), left_over));
      if (count == 0) continue;
      by_other.push_back({batch.peer, batch.incarnation, left.first(count)});
      left = left.subspan(count);
      counters_.fallback_reads.fetch_add(1, std::memory_order_relaxed);
    }
    other_->read(by_other, deadline, gate, sink);
    for (size_t i = 0; i < again.size(); ++i) *of_op[i] = again[i];
  }

  // Only RDMA can write device memory.
  static bool left_over(const ReadOp& op) {
    return op.status == PageStatus::error && !op.to_device;
  }

  bool takes_other(HolderIndex peer) {
    bool fell_before;
    {
      ReaderLock lock(mutex_);
      if (!offering_.contains(peer)) return true;
      fell_before = fallen_.contains(peer);
    }
    if (unreached_ == Unreached::fail) return false;
    const bool falls = !preferred_.reaches(peer);
    if (falls) counters_.fallback_reads.fetch_add(1, std::memory_order_relaxed);
    if (falls != fell_before) {
      WriterLock lock(mutex_);
      fell_back(peer, falls && offering_.contains(peer));
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

  Transport& preferred_;
  const std::unique_ptr<TransferEngine> other_;
  const Unreached unreached_;
  RoutedCounters& counters_;
  mutable SharedMutex mutex_;
  std::unordered_set<HolderIndex> offering_ GUARDED_BY(mutex_);
  // Peers of offering_ that the other transport served last.
  std::unordered_set<HolderIndex> fallen_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<TransferEngine> make_routed_engine(Transport& preferred,
                                                   std::unique_ptr<TransferEngine> other,
                                                   Unreached unreached, RoutedCounters& counters) {
  return std::make_unique<RoutedEngine>(preferred, std::move(other), unreached, counters);
}

}  // namespace peercached
