// get: the pool, else READ from whoever holds the page (DESIGN 6.2).
//
// Every page ends with one status. A page whose READ came back stale or failed is looked up once
// more, past the location cache, inside the same deadline; then it is a miss.

#include <algorithm>
#include <map>

#include "engine/digests.h"
#include "engine/engine.h"
#include "engine/gated_copy.h"
#include "engine/overlap.h"

namespace peercached {

struct Engine::GetRun {
  Engine& engine;
  const RequestContext& context;
  std::span<PageRef> pages;
  std::span<const Digest> digests;
  Source farthest = Source::nowhere;  // that a page came from

  void from_pool(const Digest* parent);
  // Reads the pages that are still pending; those worth another try stay pending.
  void from_peers(Trust trust);
};

void Engine::GetRun::from_pool(const Digest* parent) {
  TraceStep step(context.trace, "pool");
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  for (size_t i = 0; i < pages.size(); ++i) {
    // What lies here cannot be copied to a device: such a page comes from a peer, or not at all.
    if (pages[i].status != PageStatus::pending || pages[i].of_device) continue;
    wanted.push_back(digests[i]);
    index.push_back(i);
  }
  std::vector<PinnedPage> pins(wanted.size());
  engine.pool_->pin(wanted, parent, true, pins);

  std::vector<size_t> held;
  uint64_t bytes = 0;
  for (size_t k = 0; k < pins.size(); ++k) {
    if (!pins[k]) continue;
    if (pins[k].length != pages[index[k]].length) {
      pages[index[k]].status = PageStatus::length_mismatch;
      continue;
    }
    held.push_back(k);
    bytes += pins[k].length;
  }
  engine.crew_.run(held.size(), bytes, [&](size_t j) {
    const PinnedPage& pin = pins[held[j]];
    PageRef& page = pages[index[held[j]]];
    const GatedCopy copied = copy_gated(page.memory, pin.payload(), pin.length, page.memory,
                                        *context.gate, context.deadline);
    const bool bad = copied.status == PageStatus::ok && copied.checksum != pin.checksum;
    page.status = bad ? PageStatus::stale : copied.status;
  });
  engine.pool_->unpin(pins);

  for (size_t k : held) {
    PageRef& page = pages[index[k]];
    if (page.status == PageStatus::ok) {
      farthest = std::max(farthest, Source::pool);
      engine.counters_.get_local.fetch_add(1, std::memory_order_relaxed);
      engine.counters_.bytes_got.fetch_add(page.length, std::memory_order_relaxed);
    } else if (page.status == PageStatus::stale) {
      // The slot was pinned, so nobody wrote to it: the memory itself is bad. Never serve it again.
      engine.counters_.corrupt_local.fetch_add(1, std::memory_order_relaxed);
      const Digest bad[] = {wanted[k]};
      engine.on_evict(engine.remove_local(bad));
      page.status = PageStatus::pending;  // another holder may have it
    }
  }
  if (context.trace != nullptr) {
    const PageStatus status = pages[0].status;
    step.done(status == PageStatus::pending ? PageStatus::absent : status,
              held.empty() ? kNoHolder : kSelfHolder);
  }
}

void Engine::GetRun::from_peers(Trust trust) {
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status != PageStatus::pending) continue;
    wanted.push_back(digests[i]);
    index.push_back(i);
  }
  if (wanted.empty()) return;
  std::vector<RecordRow> rows(wanted.size());
  std::vector<PageStatus> why(wanted.size());
  engine.locate(wanted, trust, context.deadline, rows, why, context.trace);

  std::map<HolderIndex, std::vector<size_t>> by_peer;  // indices into `wanted`
  for (size_t k = 0; k < wanted.size(); ++k) {
    PageRef& page = pages[index[k]];
    if (rows[k].holder == kNoHolder) {
      page.status = why[k];
    } else if (rows[k].length != page.length) {
      page.status = PageStatus::length_mismatch;
    } else if (engine.nodes_.readable(rows[k].holder)) {
      by_peer[rows[k].holder].push_back(k);
    } else {
      page.status = PageStatus::error;
    }
  }

  std::vector<ReadOp> ops;
  ops.reserve(wanted.size());
  std::vector<size_t> op_page;
  std::vector<ReadBatch> batches;
  for (const auto& [peer, members] : by_peer) {
    const size_t first = ops.size();
    for (size_t k : members) {
      ReadOp& op = ops.emplace_back();
      op.digest = wanted[k];
      op.offset = rows[k].offset;
      op.generation = rows[k].generation;
      op.length = rows[k].length;
      op.dest = pages[index[k]].memory;
      op.to_device = pages[index[k]].of_device;
      op_page.push_back(k);
    }
    batches.push_back(
        {peer, engine.nodes_.incarnation(peer), std::span(ops).subspan(first, members.size())});
  }
  if (batches.empty()) return;
  TraceStep step(context.trace, "read");
  engine.transfer_->read(batches, context.deadline, *context.gate, engine.verifier_);
  step.done(ops[0].status, batches[0].peer);

  for (size_t o = 0; o < ops.size(); ++o) {
    PageRef& page = pages[index[op_page[o]]];
    page.status = ops[o].status;
    if (ops[o].corrupt) engine.counters_.corrupt_remote.fetch_add(1, std::memory_order_relaxed);
    if (page.status == PageStatus::ok) {
      farthest = std::max(farthest, Source::peer);
      engine.counters_.get_remote.fetch_add(1, std::memory_order_relaxed);
      engine.counters_.bytes_got.fetch_add(page.length, std::memory_order_relaxed);
      continue;
    }
    if (page.status != PageStatus::deadline) engine.locations_.forget(ops[o].digest);
    const bool again = page.status == PageStatus::stale || page.status == PageStatus::error;
    if (again && trust != Trust::nothing) {
      engine.counters_.stale_retries.fetch_add(1, std::memory_order_relaxed);
      page.status = PageStatus::pending;
    }
  }
}

void Engine::get(const RequestContext& context, std::span<PageRef> pages) {
  const TimePoint started = Clock::now();
  const NamespaceEpoch ns = context.ns->current();
  mark_overlaps(pages);
  const std::vector<Digest> digests = digests_of(ns.key, pages);
  const Digest parent =
      context.parent_key.empty() ? Digest{} : digest_of(ns.key, context.parent_key);
  GetRun run{*this, context, pages, digests};
  run.from_pool(context.parent_key.empty() ? nullptr : &parent);
  run.from_peers(Trust::cached);
  run.from_peers(Trust::nothing);
  for (PageRef& page : pages) {
    counters_.get[static_cast<size_t>(page.status) & 15].fetch_add(1, std::memory_order_relaxed);
  }
  latencies_.get[static_cast<size_t>(run.farthest)].add_since(started);
}

}  // namespace peercached
