#include "engine/adopter.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/copy.h"
#include "engine/landing.h"

namespace peercached {

namespace {

uint64_t room_for(uint32_t length) { return (uint64_t{length} + 63) / 64 * 64; }

}  // namespace

// Takes one piece at a time: as much as the landing has room for, at least one page.
struct Adopter::Run {
  const Parts& parts;
  const HolderIndex holder;
  const Handover& offered;
  const uint32_t pool_slot;
  const Deadline deadline;
  Landing& landing;
  Adopted& adopted;
  const Running::Taking& taking;

  void take(std::span<const RecordRow> rows);
  void keep(std::span<const ReadOp> landed);
  // `pinned`: pages that were here before; digests[i] belongs to committing[i].
  void publish(std::vector<PinnedPage> committing, std::span<const Digest> digests,
               std::vector<PinnedPage> pinned);
};

void Adopter::Run::take(std::span<const RecordRow> rows) {
  std::vector<ReadOp> ops(rows.size());
  uint64_t at = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    ops[i].digest = rows[i].digest;
    ops[i].offset = rows[i].offset;
    ops[i].generation = rows[i].generation;
    ops[i].length = rows[i].length;
    ops[i].dest = landing.base() + at;
    at += room_for(rows[i].length);
  }
  ReadBatch batches[] = {{holder, parts.nodes.incarnation(holder), ops}};
  parts.transports.engine().read(batches, deadline, landing.gate(), parts.verifier);
  std::erase_if(ops, [](const ReadOp& op) { return op.status != PageStatus::ok; });
  keep(ops);
}

void Adopter::Run::keep(std::span<const ReadOp> landed) {
  std::vector<PageRequest> requests;
  for (const ReadOp& op : landed) requests.push_back({op.digest, op.length});
  std::vector<Reservation> reservations(landed.size());
  parts.pool.reserve(requests, nullptr, {pool_slot, offered.namespace_id, offered.epoch},
                     reservations);

  std::vector<PinnedPage> committing, aborting, pinned;
  std::vector<Digest> digests;
  for (size_t i = 0; i < landed.size(); ++i) {
    const PinnedPage& page = reservations[i].page;
    if (reservations[i].outcome == ReserveOutcome::held) {
      pinned.push_back(page);  // set meanwhile; the other node keeps its page, too
    } else if (reservations[i].outcome == ReserveOutcome::reserved) {
      const uint64_t sum = copy_and_checksum(page.payload(), landed[i].dest, landed[i].length);
      // Checked with verify = header, too: we vouch for the bytes that we publish.
      if (sum != landed[i].header.checksum) {
        parts.counters.corrupt_remote.fetch_add(1, std::memory_order_relaxed);
        aborting.push_back(page);
        continue;
      }
      committing.push_back(page);
      committing.back().checksum = sum;
      digests.push_back(landed[i].digest);
    }
  }
  parts.pool.abort(aborting);
  publish(std::move(committing), digests, std::move(pinned));
}

void Adopter::Run::publish(std::vector<PinnedPage> committing, std::span<const Digest> digests,
                           std::vector<PinnedPage> pinned) {
  std::vector<RecordRow> rows;
  // Ends when pages removed meanwhile are withdrawn, behind their records.
  std::optional<UnderWay::Work> commit(std::in_place, parts.publisher.commits());
  const auto moves = static_cast<uint8_t>(offered.moves + (offered.spilled ? 1 : 0));
  const bool replica = offered.replicas_bytes_max.has_value();
  parts.cold.adopted(taking, digests, committing, rows, {offered.idle_ms, moves, replica});
  OperationCounters& counters = parts.counters;
  for (const RecordRow& row : rows) {
    adopted.held.push_back(row.digest);
    (replica ? counters.replicated : counters.adopted).fetch_add(1, std::memory_order_relaxed);
    (replica ? counters.replicated_bytes : counters.adopted_bytes)
        .fetch_add(row.length, std::memory_order_relaxed);
  }
  // As in a set: published while pinned, so that no withdrawal overtakes the records.
  parts.publisher.feed().append(rows);
  std::optional<ControlQueue::Question> question;
  if (!rows.empty() && !parts.publisher.store_alone(rows)) {
    question.emplace(parts.control, EventKind::publish, std::as_bytes(std::span(rows)), deadline);
  }
  pinned.insert(pinned.end(), committing.begin(), committing.end());
  std::vector<RecordRow> withdrawals;
  parts.pool.withdrawals_of(pinned, withdrawals);
  parts.cold.left_pool(withdrawals);
  commit.reset();
  // The holder of a replica's page has written it to its disk.
  if (replica)
    parts.pool.unpin(pinned);
  else
    parts.cold.write_behind(offered.namespace_id, offered.epoch, pinned);
  if (question && !question->wait()) {
    parts.counters.unpublished.fetch_add(rows.size(), std::memory_order_relaxed);
    adopted.why_not = "the owners did not accept the records in time";
    for (const RecordRow& row : rows) std::erase(adopted.held, row.digest);
  }
  // The namespace was cleared meanwhile, so the sweep may have missed what we committed.
  if (parts.namespaces.pool_slot_of(offered.namespace_id, offered.epoch) != pool_slot) {
    parts.janitor.sweep_namespace(pool_slot);
  }
}

Adopted Adopter::adopt(HolderIndex holder, const Handover& offered, Deadline deadline) {
  Adopted adopted = take(holder, offered, deadline);
  adopted.room = parts_.pool.room();
  return adopted;
}

Adopted Adopter::fetch(HolderIndex holder, Handover part, Deadline deadline) {
  part.replicas_bytes_max = UINT64_MAX;  // the share of replicas bounds those that nobody asked for
  return take(holder, part, deadline);
}

void Adopter::replicate(std::span<const HolderIndex> holders, uint64_t bytes_max,
                        Deadline deadline) {
  for (auto& [holder, part] : parts_.hot.take()) {
    if (std::find(holders.begin(), holders.end(), holder) == holders.end()) continue;
    part.replicas_bytes_max = bytes_max;
    if (!deadline.passed()) (void)take(holder, part, deadline);
  }
}

Adopted Adopter::take(HolderIndex holder, const Handover& offered, Deadline deadline) {
  Adopted adopted;
  const auto refuse = [&](const char* why) {
    OperationCounters& counters = parts_.counters;
    (offered.replicas_bytes_max ? counters.replicate_refused : counters.adopt_refused)
        .fetch_add(offered.rows.size(), std::memory_order_relaxed);
    adopted.why_not = why;
    return adopted;
  };
  if (!parts_.taking.load(std::memory_order_acquire)) return refuse("it drains, too");
  if (!parts_.nodes.readable(holder)) return refuse("it cannot read this node's pages");
  const uint32_t pool_slot = parts_.namespaces.pool_slot_of(offered.namespace_id, offered.epoch);
  if (pool_slot == 0) return refuse("the namespace was cleared, or there are too many");

  std::vector<Digest> digests;
  for (const RecordRow& row : offered.rows) digests.push_back(row.digest);
  // A page that leaves here must not be the reason why the other node drops its own.
  std::vector<Pool::Here> here(digests.size());
  parts_.pool.keeps(offered.rows, here);
  std::vector<RecordRow> missing;
  uint64_t bytes = 0, largest = 0;
  for (size_t i = 0; i < digests.size(); ++i) {
    if (here[i] == Pool::Here::yes) adopted.held.push_back(digests[i]);
    if (here[i] != Pool::Here::no) continue;
    missing.push_back(offered.rows[i]);
    bytes += offered.rows[i].length;
    largest = std::max(largest, room_for(offered.rows[i].length));
  }
  if (missing.empty()) {
    if (adopted.held.size() < digests.size()) adopted.why_not = "it gives them away itself";
    return adopted;
  }
  if (offered.replicas_bytes_max &&
      parts_.pool.replicas().bytes + bytes > *offered.replicas_bytes_max) {
    return refuse("there are as many replicas as there may be");
  }
  const double times = offered.spilled ? kSpillIdleTimes : 1.0;
  if (!parts_.pool.room(bytes).fits(bytes, offered.idle_ms, times)) {
    parts_.counters.adopt_refused.fetch_add(missing.size(), std::memory_order_relaxed);
    adopted.why_not = "its pool is full of pages that were used more recently";
    adopted.full = true;
    return adopted;
  }

  const uint64_t landing_bytes = (std::max(largest, kHandoverBytes) + 4095) / 4096 * 4096;
  Landing landing(parts_.transports, landing_bytes);
  // From here on, a removal dooms the copies. One that began before is in changes().
  const Running::Taking taking(parts_.running, digests);
  if (offered.replicas_bytes_max && parts_.running.changes() != offered.learnt_at)
    return refuse("pages were removed since these were read");
  Run run{parts_, holder, offered, pool_slot, deadline, landing, adopted, taking};
  for (size_t first = 0, end = 0; first < missing.size() && !deadline.passed(); first = end) {
    uint64_t used = 0;
    while (end < missing.size() && used + room_for(missing[end].length) <= landing_bytes) {
      used += room_for(missing[end++].length);
    }
    run.take(std::span(missing).subspan(first, end - first));
  }
  if (adopted.held.size() < offered.rows.size() && adopted.why_not.empty()) {
    adopted.why_not = "some pages could not be read in time, or did not fit into the pool";
  }
  return adopted;
}

}  // namespace peercached
