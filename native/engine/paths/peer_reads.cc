#include "engine/paths/peer_reads.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "engine/paths/device_pages.h"

namespace peercached {

namespace {

// Passes pages on to another sink, and notes when the last one of each batch came.
class Stopwatch final : public PageSink {
 public:
  // `batches` are in the order of their peers.
  Stopwatch(PageSink& next, std::span<const ReadBatch> batches, Counter& landed_bytes)
      : next_(next),
        batches_(batches),
        landed_bytes_(landed_bytes),
        landed_before_(landed_bytes.load(std::memory_order_relaxed)),
        last_(batches.size()) {}

  void landed(const ReadBatch& batch, ReadOp& op) override {
    next_.landed(batch, op);
    landed_bytes_.add(op.length);
    const auto timed =
        std::lower_bound(batches_.begin(), batches_.end(), batch.peer,
                         [](const ReadBatch& one, HolderIndex peer) { return one.peer < peer; });
    last_[static_cast<size_t>(timed - batches_.begin())].store(Clock::now(),
                                                               std::memory_order_relaxed);
  }
  bool sums() const override { return next_.sums(); }

  // Tells how long the pages of each batch took. Adds holders that are crowded.
  void record(HolderSpeeds& speeds, Slices& slices, GetLoads& loads) const {
    const uint64_t all_bytes = landed_bytes_.load(std::memory_order_relaxed) - landed_before_;
    for (size_t b = 0; b < batches_.size(); ++b) {
      const Came came = came_of(b);
      const TimePoint last = came.late ? Clock::now() : last_[b].load(std::memory_order_relaxed);
      loads.came({Source::peer, batches_[b].peer}, came.bytes, last, came.late);
      const uint64_t bytes = came.all ? came.bytes : 0;
      // Compared with reads of all bytes: the limit may be our own network.
      if (bytes >= kSliceBytesMin && speeds.crowded(all_bytes, last - began_))
        slices.crowded.insert(batches_[b].peer);
      speeds.note(batches_[b].peer, bytes, last - began_, last);
    }
  }

 private:
  struct Came {
    uint64_t bytes = 0;
    bool all = true, late = false;
  };
  Came came_of(size_t b) const {
    Came came;
    for (const ReadOp& op : batches_[b].ops) {
      const bool ok = op.status == PageStatus::ok;
      came.bytes += ok ? op.length : 0;
      came.all = came.all && ok;
      came.late = came.late || op.status == PageStatus::deadline;
    }
    return came;
  }

  PageSink& next_;
  const std::span<const ReadBatch> batches_;
  Counter& landed_bytes_;  // of the whole get
  const uint64_t landed_before_;
  const TimePoint began_ = Clock::now();
  std::vector<std::atomic<TimePoint>> last_;  // by batch
};

}  // namespace

struct PeerReads::Batches {
  std::vector<ReadOp> ops;
  std::vector<const FoundPage*> found;  // by operation
  std::vector<ReadBatch> by_peer;       // spans of `ops`, in the same order
  std::vector<uint8_t> not_copied;  // by operation: 1 if the page came and did not land; or empty
};

void PeerReads::read(GetPages& get, Slices& slices, GetLoads& loads, const ByHolder& found,
                     Source source) const {
  Batches sent = batches_of(get, found);
  if (sent.by_peer.empty()) return;
  transfer_all(get, slices, loads, sent);
  copy_to_device(get, sent);
  settle(get, sent, source);
  note_hot(get, sent);
  store_replicas(get, slices, sent);
  note_used(sent);
}

PeerReads::Batches PeerReads::batches_of(const GetPages& get, const ByHolder& found) const {
  Batches made;
  size_t count = 0;
  for (const auto& [holder, members] : found) count += members.size();
  made.ops.reserve(count);
  for (const auto& [holder, members] : found) {
    if (members.empty()) continue;
    const size_t first = made.ops.size();
    for (const FoundPage& one : members) {
      ReadOp& op = made.ops.emplace_back();
      op.digest = get.digests[one.page];
      op.offset = one.row.offset;
      op.generation = one.row.generation;
      op.length = one.row.length;
      op.dest = get.pages[one.page].memory;
      op.to_device = get.pages[one.page].of_device;
      made.found.push_back(&one);
    }
    made.by_peer.push_back(
        {holder, nodes.incarnation(holder), std::span(made.ops).subspan(first, members.size())});
  }
  return made;
}

void PeerReads::transfer_all(GetPages& get, Slices& slices, GetLoads& loads, Batches& sent) const {
  TraceStep step(get.context.trace, "read");
  Stopwatch stopwatch(verifier, sent.by_peer, get.shared.landed_bytes);
  transfer.read(sent.by_peer, get.context.deadline, *get.context.gate, stopwatch);
  stopwatch.record(speeds, slices, loads);
  if (get.context.trace == nullptr) return;
  for (const ReadBatch& batch : sent.by_peer) {
    const auto ok = std::ranges::count(batch.ops, PageStatus::ok, &ReadOp::status);
    step.done(batch.ops[0].status, batch.peer, batch.ops.size(), static_cast<size_t>(ok));
  }
}

void PeerReads::copy_to_device(GetPages& get, Batches& sent) const {
  std::vector<DevicePage> pages;
  std::vector<size_t> ops;
  for (size_t o = 0; o < sent.ops.size(); ++o) {
    PageRef& page = get.pages[sent.found[o]->page];
    if (page.layout == nullptr || sent.ops[o].status != PageStatus::ok) continue;
    pages.push_back({&page, sent.ops[o].dest});
    ops.push_back(o);
  }
  if (pages.empty()) return;
  land_device_pages(*devices, get, pages);
  sent.not_copied.resize(sent.ops.size());
  for (size_t k = 0; k < ops.size(); ++k)
    sent.not_copied[ops[k]] = pages[k].page->status != PageStatus::ok;
}

void PeerReads::settle(GetPages& get, const Batches& sent, Source source) {
  for (size_t o = 0; o < sent.ops.size(); ++o) {
    const ReadOp& op = sent.ops[o];
    const FoundPage& found = *sent.found[o];
    if (op.corrupt) get.counters.corrupt_remote.add();
    // Another holder could not do better, and the worker may use stages that have landed.
    if (!sent.not_copied.empty() && sent.not_copied[o] != 0) continue;
    if (op.status == PageStatus::ok) {
      get.got(found.page, source);
    } else {
      if (op.status == PageStatus::stale && !op.corrupt)
        get.gone[found.page] = found.row.generation;
      get.missed(found, op.status);
    }
  }
}

void PeerReads::note_hot(const GetPages& get, const Batches& sent) const {
  std::vector<RecordRow> rows;
  for (size_t o = 0; o < sent.ops.size(); ++o) {
    // A replica in our pool would not help a worker with memory of a device.
    if (sent.ops[o].status == PageStatus::ok && !sent.ops[o].to_device)
      rows.push_back(sent.found[o]->row);
  }
  hot.note(get.context.ns->id(), get.epoch, rows, Clock::now(), get.removals);
}

// Stores at most a slice of a crowded holder's pages: other readers keep other pages.
void PeerReads::store_replicas(const GetPages& get, Slices& slices, const Batches& sent) const {
  std::span<const FoundPage* const> rest = sent.found;
  for (const ReadBatch& batch : sent.by_peer) {
    const auto found = rest.first(batch.ops.size());
    rest = rest.subspan(batch.ops.size());
    if (!slices.crowded.contains(batch.peer)) continue;
    std::vector<size_t> landed;
    uint64_t bytes = 0;
    for (size_t o = 0; o < batch.ops.size(); ++o) {
      if (batch.ops[o].status != PageStatus::ok || batch.ops[o].to_device) continue;
      landed.push_back(o);
      bytes += batch.ops[o].length;
    }
    std::ranges::sort(landed, {}, [&](size_t o) { return speeds.place(batch.ops[o].digest); });
    Handover part{get.context.ns->id(), get.epoch, 0, 0, false, {}, get.removals, {}};
    std::vector<ReadOp> kept;
    const uint64_t slice_bytes = slices.slice(batch.peer, bytes);
    for (uint64_t taken = 0; kept.size() < landed.size() && taken < slice_bytes;) {
      const size_t o = landed[kept.size()];
      kept.push_back(batch.ops[o]);
      part.rows.push_back(found[o]->row);
      taken += batch.ops[o].length;
    }
    if (kept.empty()) continue;
    TraceStep step(get.context.trace, "keep", kept.size());
    adopter.commit_landed(batch.peer, std::move(part), kept, *get.context.gate,
                          get.context.deadline);
    step.done(PageStatus::ok, batch.peer);
  }
}

void PeerReads::note_used(const Batches& sent) const {
  for (const ReadBatch& batch : sent.by_peer) {
    std::vector<Digest> digests;
    for (const ReadOp& op : batch.ops)
      if (op.one_sided && op.status == PageStatus::ok) digests.push_back(op.digest);
    if (!digests.empty()) used.note(batch.peer, digests, Clock::now());
  }
}

}  // namespace peercached
