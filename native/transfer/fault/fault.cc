#include "transfer/fault/fault.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "common/fault_guard.h"
#include "common/mutex.h"

namespace peercached {
namespace {

enum class PageFault : uint8_t { none, delay, drop, truncate, corrupt, blind };
enum class BatchFault : uint8_t { none, reset, hang };

struct Fault {
  PageFault kind = PageFault::none;
  uint64_t dice = 0;  // random: where to do damage, or how much
};

struct PlannedBatch {
  std::span<ReadOp> ops;
  std::vector<Fault> faults;  // one per op
};

// Draws all faults of a call before it starts. Pages land in random order, but the same seed must
// give the same faults.
class FaultDice {
 public:
  explicit FaultDice(const FaultPlan& plan) : plan_(plan), random_(plan.seed) {}

  BatchFault batch_fault() {
    const double throw_ = fraction();
    if (throw_ < plan_.reset) return BatchFault::reset;
    if (throw_ < plan_.reset + plan_.hang) return BatchFault::hang;
    return BatchFault::none;
  }

  Fault page_fault() {
    double throw_ = fraction();
    const uint64_t dice = random_();
    const std::pair<PageFault, double> kinds[] = {{PageFault::delay, plan_.delay},
                                                  {PageFault::drop, plan_.drop},
                                                  {PageFault::truncate, plan_.truncate},
                                                  {PageFault::corrupt, plan_.corrupt},
                                                  {PageFault::blind, plan_.blind}};
    for (const auto& [kind, chance] : kinds) {
      if (throw_ < chance) return {kind, dice};
      throw_ -= chance;
    }
    return {PageFault::none, dice};
  }

 private:
  // By hand, because std::uniform_real_distribution differs between standard libraries.
  double fraction() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  const FaultPlan& plan_;
  std::mt19937_64 random_;
};

// `dest` is worker memory, so our writes need the gate and the guard like all others.
bool spoil_dest(WriteGate& gate, std::span<std::byte> dest) {
  while (!dest.empty()) {
    const auto piece = dest.first(std::min(dest.size(), kGatePieceBytes));
    if (!gate.enter()) return false;
    const bool there = guarded(piece.data(), piece.size(), [&] {
      for (std::byte& byte : piece) byte ^= std::byte{0xa5};
    });
    gate.leave();
    if (!there) return false;
    dest = dest.subspan(piece.size());
  }
  return true;
}

class FaultSink final : public PageSink {
 public:
  FaultSink(const FaultPlan& plan, std::span<const PlannedBatch> planned, Deadline deadline,
            WriteGate& gate, PageSink& sink)
      : plan_(plan), planned_(planned), deadline_(deadline), gate_(gate), sink_(sink) {}

  void landed(const ReadBatch& batch, ReadOp& op) override {
    const Fault fault = fault_of(op);
    bool fails = false;
    switch (fault.kind) {
      case PageFault::none:
        break;
      case PageFault::delay:
        std::this_thread::sleep_until(std::min(
            deadline_.at,
            Clock::now() + std::chrono::microseconds(fault.dice % plan_.delay_us_max + 1)));
        break;
      case PageFault::drop:
        fails = true;
        break;
      case PageFault::truncate:
        op.checksum.reset();
        fails = !spoil_dest(gate_, std::span(op.dest, op.length).subspan(fault.dice % op.length));
        break;
      case PageFault::blind:
        op.status = PageStatus::ok;
        return;
      case PageFault::corrupt:
        fails = !corrupt(op, fault.dice);
        break;
    }
    if (fails) {
      op.status = PageStatus::error;
      return;
    }
    sink_.landed(batch, op);
  }
  bool sums() const override { return sink_.sums(); }

 private:
  Fault fault_of(const ReadOp& op) const {
    for (const PlannedBatch& planned : planned_) {
      const std::span<ReadOp> ops = planned.ops;
      // Compared as numbers: pointers into different arrays have no defined order.
      const auto first = reinterpret_cast<uintptr_t>(ops.data());
      const auto here = reinterpret_cast<uintptr_t>(&op);
      if (here - first < ops.size_bytes()) return planned.faults[(here - first) / sizeof(ReadOp)];
    }
    return {};
  }

  // Changes one byte: of the header one time in four, else of the payload.
  bool corrupt(ReadOp& op, uint64_t dice) {
    const uint64_t where = dice >> 2;
    if (dice % 4 == 0) {
      auto* header = reinterpret_cast<std::byte*>(&op.header);
      header[where % sizeof(SlotHeader)] ^= std::byte{0x10};
      return true;
    }
    op.checksum.reset();
    return spoil_dest(gate_, {op.dest + where % op.length, 1});
  }

  const FaultPlan& plan_;
  const std::span<const PlannedBatch> planned_;
  const Deadline deadline_;
  WriteGate& gate_;
  PageSink& sink_;
};

class FaultyEngine final : public TransferEngine {
 public:
  FaultyEngine(std::unique_ptr<TransferEngine> inner, const FaultPlan& plan, PeerWatcher& watcher)
      : inner_(std::move(inner)), plan_(plan), watcher_(watcher), dice_(plan_) {}

  void add_peer(HolderIndex peer, const PeerEndpoint& endpoint) override {
    inner_->add_peer(peer, endpoint);
  }
  void drop_peer(HolderIndex peer) override { inner_->drop_peer(peer); }
  std::vector<PeerHealth> health() const override { return inner_->health(); }
  const char* name() const override { return inner_->name(); }

  void hold(std::span<HoldBatch> batches, uint32_t hold_ms, Deadline deadline) override {
    inner_->hold(batches, hold_ms, deadline);
  }
  void lookup(std::span<LookupBatch> batches, uint64_t view_number, Deadline deadline) override {
    inner_->lookup(batches, view_number, deadline);
  }
  void push(std::span<PushBatch> batches, Deadline deadline) override {
    inner_->push(batches, deadline);
  }

  void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
            PageSink& sink) override {
    std::vector<ReadBatch> passed;
    std::vector<PlannedBatch> planned;
    std::vector<const ReadBatch*> reset, hung;
    {
      MutexLock lock(mutex_);
      for (const ReadBatch& batch : batches) {
        const BatchFault fault = dice_.batch_fault();
        if (fault == BatchFault::reset) reset.push_back(&batch);
        if (fault == BatchFault::hang) hung.push_back(&batch);
        if (fault != BatchFault::none) continue;
        passed.push_back(batch);
        PlannedBatch& drawn = planned.emplace_back(PlannedBatch{batch.ops, {}});
        for (size_t i = 0; i < batch.ops.size(); ++i) drawn.faults.push_back(dice_.page_fault());
      }
    }
    for (const ReadBatch* batch : reset) end(*batch, PageStatus::error, "reset (injected fault)");

    FaultSink faulty_sink(plan_, planned, deadline, gate, sink);
    inner_->read(passed, deadline, gate, faulty_sink);

    if (!hung.empty()) std::this_thread::sleep_until(deadline.at);
    for (const ReadBatch* batch : hung) end(*batch, PageStatus::deadline, "hung (injected fault)");
  }

 private:
  void end(const ReadBatch& batch, PageStatus status, const char* what) {
    for (ReadOp& op : batch.ops) op.status = status;
    if (!batch.ops.empty()) watcher_.peer_trouble(batch.peer, batch.incarnation, what);
  }

  const std::unique_ptr<TransferEngine> inner_;
  const FaultPlan plan_;
  PeerWatcher& watcher_;
  Mutex mutex_;
  FaultDice dice_ GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<TransferEngine> make_faulty(std::unique_ptr<TransferEngine> inner,
                                            const FaultPlan& plan, PeerWatcher& watcher) {
  return std::make_unique<FaultyEngine>(std::move(inner), plan, watcher);
}

}  // namespace peercached
