#include "engine/handover/adopter.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/gated_copy.h"
#include "engine/peers/landing.h"

namespace peercached {

namespace {

uint64_t room_for(uint32_t length) { return (uint64_t{length} + 63) / 64 * 64; }

}  // namespace

// Bytes of replicas that are on their way into the pool.
class Adopter::Coming {
 public:
  Coming(std::atomic<uint64_t>& sum, uint64_t bytes)
      : sum_(sum), bytes_(bytes), before_(sum.fetch_add(bytes)) {}
  ~Coming() { sum_.fetch_sub(bytes_); }
  Coming(const Coming&) = delete;
  Coming& operator=(const Coming&) = delete;
  uint64_t with_earlier() const { return before_ + bytes_; }

 private:
  std::atomic<uint64_t>& sum_;
  const uint64_t bytes_, before_;
};

struct Adopter::Admitted {
  uint32_t pool_slot = 0;              // of their namespace
  std::vector<size_t> missing;         // by place among the offered ones
  std::unique_ptr<Coming> replicas{};  // null: they are no replicas
};

// Pages of one part on their way into the pool.
struct Adopter::Intake {
  const Parts& parts;
  const Handover& offered;
  const uint32_t pool_slot;
  const Deadline deadline;
  Adopted& adopted;
  const Running::Taking& taking;
  const bool of_worker;  // a worker waits for us; or the pages landed in its region
  PageSeal* const seal = nullptr;

  void read_and_commit(HolderIndex holder, std::span<const RecordRow> rows, Landing& landing);
  // `gate`: of the memory that they have landed in.
  void commit(std::span<const ReadOp> landed, WriteGate& gate);
  // Copies one of them into its slot. Late: there was no time, or the worker took its memory away.
  enum class Came { whole, damaged, late };
  Came copy(const ReadOp& landed, PinnedPage& page, WriteGate& gate);
  // A page that moves keeps the count of its reads.
  void keep_uses(std::span<const PinnedPage> pages, std::span<const RecordRow> rows) const;
  // `pinned`: pages that were here before; digests[i] belongs to page i of `committing`.
  void publish(HeldSlots committing, std::span<const Digest> digests, HeldSlots pinned);
};

void Adopter::Intake::read_and_commit(HolderIndex holder, std::span<const RecordRow> rows,
                                      Landing& landing) {
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
  commit(ops, landing.gate());
}

void Adopter::Intake::commit(std::span<const ReadOp> landed, WriteGate& gate) {
  std::vector<PageRequest> requests;
  for (const ReadOp& op : landed) requests.push_back({op.digest, op.length});
  std::vector<Reservation> reservations(landed.size());
  HeldSlots held(parts.pool, requests, nullptr, {pool_slot, offered.namespace_id, offered.epoch},
                 reservations, Replace::no);

  HeldSlots committing(parts.pool), pinned(parts.pool);
  std::vector<Digest> digests;
  for (size_t i = 0; i < landed.size(); ++i) {
    PinnedPage& page = held.pages()[i];
    if (reservations[i].outcome == ReserveOutcome::present) {
      pinned.take(page);  // set meanwhile; the other node keeps its page, too
    } else if (reservations[i].outcome == ReserveOutcome::reserved) {
      const Came came = copy(landed[i], page, gate);
      if (came != Came::whole) {
        // A worker may have written to its own memory meanwhile.
        if (came == Came::damaged && !of_worker) parts.counters.corrupt_remote.add();
        if (came == Came::damaged) adopted.corrupt.push_back(landed[i].digest);
        continue;
      }
      page.born = landed[i].header.born;
      committing.take(page);
      digests.push_back(landed[i].digest);
    }
  }
  held = HeldSlots(parts.pool);  // nobody waits for the others
  publish(std::move(committing), digests, std::move(pinned));
}

Adopter::Intake::Came Adopter::Intake::copy(const ReadOp& landed, PinnedPage& page,
                                            WriteGate& gate) {
  if (seal != nullptr) {
    const ObjectEntry entry{landed.digest, landed.header.checksum,
                            static_cast<uint32_t>(landed.offset), landed.length};
    const auto sum = seal->open(entry, landed.dest, page.payload());
    if (!sum || *sum != entry.checksum) return Came::damaged;
    page.checksum = *sum;
    return Came::whole;
  }
  const GatedCopy copied =
      copy_gated(page.payload(), landed.dest, landed.length, landed.dest, gate, deadline);
  if (copied.status != PageStatus::ok) return Came::late;
  // Checked with verify = header, too: we publish these bytes as our own.
  if (copied.checksum != landed.header.checksum) return Came::damaged;
  page.checksum = copied.checksum;
  return Came::whole;
}

void Adopter::Intake::keep_uses(std::span<const PinnedPage> pages,
                                std::span<const RecordRow> rows) const {
  std::map<Digest, uint8_t> known;
  for (const RecordRow& row : offered.rows) known.emplace(row.digest, row.uses);
  std::vector<uint8_t> uses;
  for (const RecordRow& row : rows) uses.push_back(known[row.digest]);
  parts.pool.set_uses(pages, uses);
}

void Adopter::Intake::publish(HeldSlots committing, std::span<const Digest> digests,
                              HeldSlots pinned) {
  std::vector<RecordRow> rows;
  // Ends when pages removed meanwhile are withdrawn, behind their records.
  std::optional<UnderWay::Work> commit(std::in_place, parts.publisher.commits());
  const auto moves = static_cast<uint8_t>(offered.moves + (offered.spilled ? 1 : 0));
  const bool replica = offered.replicas_bytes_max.has_value();
  parts.disk.adopted(taking, digests, committing, rows,
                     {offered.idle_ms, moves, replica, offered.ahead}, offered.valid_until);
  if (!replica) keep_uses(committing.pages(), rows);
  OperationCounters& counters = parts.counters;
  for (const RecordRow& row : rows) {
    adopted.taken.push_back(row.digest);
    (offered.valid_until ? counters.from_store
     : replica           ? counters.replicated
                         : counters.adopted)
        .add();
    (offered.valid_until ? counters.from_store_bytes
     : replica           ? counters.replicated_bytes
                         : counters.adopted_bytes)
        .add(row.length);
  }
  // As in a set: published while pinned, so that no withdrawal overtakes the records.
  parts.publisher.append(rows);
  for (PinnedPage& page : committing.pages()) pinned.take(page);
  std::vector<RecordRow> withdrawals;
  parts.pool.withdrawals_of(pinned.pages(), withdrawals);
  parts.disk.left_pool(withdrawals);
  commit.reset();
  // The holder of a replica's page has written it to its disk.
  if (replica)
    pinned = HeldSlots(parts.pool);
  else
    parts.disk.write_behind(offered.namespace_id, offered.epoch, std::move(pinned));
  std::vector<Digest> told;
  for (const RecordRow& row : rows) told.push_back(row.digest);
  if (!rows.empty() && !of_worker && !parts.publisher.wait_told(told, deadline)) {
    parts.counters.unpublished.add();
    adopted.why_not = "the owners did not accept the records in time";
    for (const RecordRow& row : rows) std::erase(adopted.taken, row.digest);
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
  part.replicas_bytes_max = UINT64_MAX;  // the bound is for replicas that nobody asked for
  return take(holder, part, deadline);
}

void Adopter::replicate(Deadline deadline) {
  for (auto& [holder, part] : parts_.hot.take()) {
    part.replicas_bytes_max = replicas_max_.load();
    if (!deadline.passed()) (void)take(holder, part, deadline);
  }
}

void Adopter::commit_landed(HolderIndex holder, Handover part, std::span<const ReadOp> landed,
                            WriteGate& gate, Deadline deadline) {
  if (!parts_.nodes.usable(holder)) return;
  part.replicas_bytes_max = replicas_max_.load();
  Adopted adopted;
  const Admitted admitted = admit(part, adopted);
  if (admitted.missing.empty()) return;
  std::vector<ReadOp> ops;
  std::vector<Digest> digests;
  for (const size_t i : admitted.missing) {
    ops.push_back(landed[i]);
    digests.push_back(landed[i].digest);
  }
  // As in take(). The pages were READ before, so nothing may have been removed since their records
  // were learnt.
  const Running::Taking taking(parts_.running, digests);
  if (parts_.running.changes() != part.learnt_at) return;
  Intake intake{parts_, part, admitted.pool_slot, deadline, adopted, taking, /*of_worker=*/true};
  intake.commit(ops, gate);
}

Adopted Adopter::land(const Handover& part, std::span<const ReadOp> landed, Deadline deadline,
                      PageSeal* seal) {
  Adopted adopted;
  if (!parts_.serving.on()) {
    adopted.why_not = "it may have missed removals";
    return adopted;
  }
  const Admitted admitted = admit(part, adopted);
  std::vector<ReadOp> ops;
  std::vector<Digest> digests;
  uint64_t free_bytes = part.ahead ? parts_.pool.room().free_bytes : UINT64_MAX;
  for (const size_t i : admitted.missing) {
    if (landed[i].length > free_bytes) break;
    free_bytes -= landed[i].length;
    ops.push_back(landed[i]);
    digests.push_back(landed[i].digest);
  }
  if (ops.empty()) return adopted;
  // A removal that has begun here dooms them. `valid_until` covers removals that are over.
  const Running::Taking taking(parts_.running, digests);
  WriteGatePage gate_page{};  // nobody fences memory of our own
  WriteGate gate(&gate_page);
  Intake intake{parts_,  part,   admitted.pool_slot, deadline,
                adopted, taking, /*of_worker=*/true, seal};
  intake.commit(ops, gate);
  return adopted;
}

void Adopter::refuse(const Handover& offered, const char* why, Adopted& adopted) const {
  OperationCounters& counters = parts_.counters;
  (offered.replicas_bytes_max ? counters.replicate_refused : counters.adopt_refused)
      .add(offered.rows.size());
  adopted.why_not = why;
}

Adopter::Admitted Adopter::admit(const Handover& offered, Adopted& adopted) const {
  Admitted admitted;
  const auto refused = [&](const char* why) {
    refuse(offered, why, adopted);
    return Admitted{};
  };
  if (!parts_.serving.taking()) return refused("it drains, too");
  admitted.pool_slot = parts_.namespaces.pool_slot_of(offered.namespace_id, offered.epoch);
  if (admitted.pool_slot == 0) return refused("the namespace was cleared, or there are too many");

  // If our own copy is about to leave, the other node must not drop its own.
  std::vector<Pool::Here> here(offered.rows.size());
  parts_.pool.keeps(offered.rows, here);
  uint64_t bytes = 0;
  for (size_t i = 0; i < offered.rows.size(); ++i) {
    if (here[i] == Pool::Here::yes) adopted.taken.push_back(offered.rows[i].digest);
    if (here[i] != Pool::Here::no) continue;
    admitted.missing.push_back(i);
    bytes += offered.rows[i].length;
  }
  if (admitted.missing.empty()) {
    if (adopted.taken.size() < offered.rows.size()) adopted.why_not = "it gives them away itself";
    return admitted;
  }
  if (offered.replicas_bytes_max) {
    admitted.replicas = std::make_unique<Coming>(replicas_coming_, bytes);
    if (parts_.pool.replicas().bytes + admitted.replicas->with_earlier() >
        *offered.replicas_bytes_max) {
      return refused("there are as many replicas as there may be");
    }
  }
  const double times = offered.spilled ? kSpillIdleTimes : 1.0;
  if (!parts_.pool.room(bytes).fits(bytes, offered.idle_ms, times)) {
    parts_.counters.adopt_refused.add(admitted.missing.size());
    adopted.why_not = "its pool is full of pages that were used more recently";
    adopted.full = true;
    return {};
  }
  return admitted;
}

Adopted Adopter::take(HolderIndex holder, const Handover& offered, Deadline deadline) {
  Adopted adopted;
  if (!parts_.nodes.readable(holder)) {
    refuse(offered, "it cannot read this node's pages", adopted);
    return adopted;
  }
  const Admitted admitted = admit(offered, adopted);
  if (admitted.missing.empty()) return adopted;
  std::vector<RecordRow> missing;
  std::vector<Digest> digests;
  uint64_t largest = 0;
  for (const size_t i : admitted.missing) {
    missing.push_back(offered.rows[i]);
    digests.push_back(offered.rows[i].digest);
    largest = std::max(largest, room_for(offered.rows[i].length));
  }

  const uint64_t landing_bytes = (std::max(largest, kHandoverBytes) + 4095) / 4096 * 4096;
  Landing landing(parts_.transports, landing_bytes);
  // From here on, a removal dooms the copies. changes() counts earlier ones.
  const Running::Taking taking(parts_.running, digests);
  if (offered.replicas_bytes_max && parts_.running.changes() != offered.learnt_at) {
    refuse(offered, "pages were removed since these were read", adopted);
    return adopted;
  }
  Intake intake{parts_,  offered, admitted.pool_slot, deadline,
                adopted, taking,  /*of_worker=*/false};
  // A piece fills the landing, or is one page.
  for (size_t first = 0, end = 0; first < missing.size() && !deadline.passed(); first = end) {
    uint64_t used = 0;
    while (end < missing.size() && used + room_for(missing[end].length) <= landing_bytes) {
      used += room_for(missing[end++].length);
    }
    intake.read_and_commit(holder, std::span(missing).subspan(first, end - first), landing);
  }
  if (adopted.taken.size() < offered.rows.size() && adopted.why_not.empty()) {
    adopted.why_not = "some pages could not be read in time, or did not fit into the pool";
  }
  return adopted;
}

}  // namespace peercached
