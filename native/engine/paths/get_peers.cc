// get, the part about other nodes. Pages in their pools are READ. Pages on their disks only are
// promoted first: we ask the holder, and it answers with the new records.
//
// Many pages of one holder are read in turns. The first one is a slice of them. If it comes as
// quickly as usual, the rest follows at once. If not, many nodes read from that holder at this
// moment, and perhaps the same pages. So we keep what has come, for the others, and look the rest
// up again, because others keep what has come to them. Each reader begins elsewhere
// (docs/page-placement.md).
//
// Holders do not wait for each other (docs/data-path.md). A holder that gives its pages in several
// steps has a thread of its own, if other holders give pages, too.
//
// A holder is asked for a few megabytes at a time, and for the next ones before those are read. So
// its disk and the network work at the same time, and it need not keep much in its pool for one
// reader.

#include <algorithm>
#include <deque>
#include <system_error>
#include <thread>

#include "engine/control/payload.h"
#include "engine/paths/get_run.h"

namespace peercached {

namespace {

constexpr uint64_t kPromoteBytes = 8 << 20;
constexpr size_t kPromotePages = 1024;

// A holder is read in slices if there is that much to read from it, or a good deal and it is not
// known to be quick. A slice is a share of it.
constexpr uint64_t kManyBytes = 32 << 20;
constexpr uint64_t kSomeBytes = 4 << 20;
constexpr uint64_t kSliceBytesMin = 512 << 10;
constexpr uint64_t kSlices = 16;
// For owners that are asked again for what a crowded holder has.
constexpr auto kAnewWithin = std::chrono::milliseconds(100);

// Passes pages on to another sink, and notes when the last one of each batch came.
class Stopwatch final : public PageSink {
 public:
  // `batches` are in the order of their peers.
  Stopwatch(PageSink& next, std::span<const ReadBatch> batches, std::atomic<uint64_t>& landed_bytes)
      : next_(next),
        batches_(batches),
        landed_bytes_(landed_bytes),
        landed_before_(landed_bytes.load(std::memory_order_relaxed)),
        last_(batches.size()) {}

  void landed(const ReadBatch& batch, ReadOp& op) override {
    next_.landed(batch, op);
    landed_bytes_.fetch_add(op.length, std::memory_order_relaxed);
    const auto timed =
        std::lower_bound(batches_.begin(), batches_.end(), batch.peer,
                         [](const ReadBatch& one, HolderIndex peer) { return one.peer < peer; });
    last_[static_cast<size_t>(timed - batches_.begin())].store(Clock::now(),
                                                               std::memory_order_relaxed);
  }
  bool sums() const override { return next_.sums(); }

  // Tells how long the pages of each batch took, if all have come. Adds holders that are crowded.
  void tell(HolderSpeeds& speeds, std::set<HolderIndex>& crowded) const {
    const uint64_t all_bytes = landed_bytes_.load(std::memory_order_relaxed) - landed_before_;
    for (size_t b = 0; b < batches_.size(); ++b) {
      const uint64_t bytes = bytes_of(b);
      const TimePoint last = last_[b].load(std::memory_order_relaxed);
      // Compared with reads of all bytes: the limit may be our own network.
      if (bytes >= kSliceBytesMin && speeds.crowded(all_bytes, last - began_))
        crowded.insert(batches_[b].peer);
      speeds.note(batches_[b].peer, bytes, last - began_, last);
    }
  }

 private:
  // 0: not all pages have come.
  uint64_t bytes_of(size_t b) const {
    uint64_t bytes = 0;
    for (const ReadOp& op : batches_[b].ops) {
      if (op.status != PageStatus::ok) return 0;
      bytes += op.length;
    }
    return bytes;
  }

  PageSink& next_;
  const std::span<const ReadBatch> batches_;
  std::atomic<uint64_t>& landed_bytes_;  // of the whole get
  const uint64_t landed_before_;
  const TimePoint began_ = Clock::now();
  std::vector<std::atomic<TimePoint>> last_;  // by batch
};

}  // namespace

struct GetPath::Run::Asked {
  Asked(ControlQueue& control, HolderIndex asked_holder, std::vector<Found> asked_pages,
        uint64_t removals_before, std::span<const Digest> wanted, Deadline deadline)
      : holder(asked_holder),
        pages(std::move(asked_pages)),
        removals(removals_before),
        question(control, EventKind::promote, payload_of(PromoteQuestion{holder}, wanted),
                 deadline) {}

  const HolderIndex holder;
  const std::vector<Found> pages;
  const uint64_t removals;  // Running::changes() before it was asked
  ControlQueue::Question question;
};

// One holder's pages, as a get of their own.
struct GetPath::Run::Apart {
  Apart(const Run& whole, std::span<const Found> some_resident, std::span<const Found> some_cold)
      : context(whole.context),
        run{whole.parts,
            context,
            whole.shared,
            whole.parent,
            {},
            {},
            whole.epoch,
            whole.removals,
            std::vector<HolderIndex>(some_resident.size() + some_cold.size(), kNoHolder)} {
    if (context.trace != nullptr) context.trace = &trace;
    add(whole, some_resident, resident);
    add(whole, some_cold, cold);
    run.pages = pages;
    run.digests = digests;
    run.crowded = whole.crowded;
  }

  void add(const Run& whole, std::span<const Found> some, ByHolder& here) {
    for (const Found& one : some) {
      here[one.row.holder].push_back({pages.size(), one.row});
      of_whole.push_back(one.page);
      pages.push_back(whole.pages[one.page]);
      digests.push_back(whole.digests[one.page]);
    }
  }

  void read(Trust trust) {
    std::deque<Apart> apart;
    run.take(resident, cold, trust);
    if (trust != Trust::nothing) run.try_again(apart);
    for (Apart& one : apart) one.give(run);
  }

  // Waits for the thread.
  void give(Run& whole) {
    thread.join();
    for (size_t k = 0; k < pages.size(); ++k) {
      whole.pages[of_whole[k]].status = pages[k].status;
      if (!run.unread.empty() && run.unread[k] != 0) whole.not_read(of_whole[k]);
    }
    whole.farthest = std::max(whole.farthest, run.farthest);
    for (size_t s = 0; s < run.looked.found.size(); ++s)
      whole.looked.found[s] += run.looked.found[s];
    for (const Trace::Step& step : trace.steps) whole.context.trace->add(step);
  }

  Trace trace;
  RequestContext context;
  ByHolder resident, cold;
  std::vector<size_t> of_whole;  // page k here is that page there
  std::vector<PageRef> pages;
  std::vector<Digest> digests;
  Run run;
  std::jthread thread;
};

void GetPath::Run::missed(const Found& found, PageStatus status, Trust trust) {
  PageRef& page = pages[found.page];
  page.status = status;
  if (status != PageStatus::deadline) parts.locations.forget(digests[found.page]);
  const bool in_time = !context.deadline.passed() && !context.gate->fenced();
  const bool again = status == PageStatus::stale || status == PageStatus::error ||
                     status == PageStatus::length_mismatch ||
                     (status == PageStatus::deadline && in_time);
  if (again && trust != Trust::nothing) {
    parts.counters.stale_retries.fetch_add(1, std::memory_order_relaxed);
    page.status = PageStatus::pending;
    failed[found.page] = found.row.holder;
  }
}

void GetPath::Run::from_peers() {
  std::deque<Apart> apart;
  look_up_and_read(Trust::cached, apart);
  try_again(apart);
  for (Apart& one : apart) one.give(*this);
}

void GetPath::Run::try_again(std::deque<Apart>& apart) {
  from_pool();
  look_up_and_read(Trust::nothing, apart);
}

void GetPath::Run::look_up_and_read(Trust trust, std::deque<Apart>& apart) {
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  std::vector<HolderIndex> failed_at;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status != PageStatus::pending) continue;
    wanted.push_back(digests[i]);
    index.push_back(i);
    failed_at.push_back(failed[i]);
  }
  if (wanted.empty()) return;
  std::vector<RecordRow> rows(wanted.size());
  std::vector<PageStatus> why(wanted.size());
  parts.locator.locate(wanted, failed_at, trust, context.deadline, rows, why, context.trace);

  ByHolder resident, cold;
  for (size_t k = 0; k < wanted.size(); ++k) {
    PageRef& page = pages[index[k]];
    if (rows[k].holder != kNoHolder) {
      sort_in({index[k], rows[k]}, trust, resident, cold);
    } else {
      // Stale: our own record. The page has come to our pool since we looked, or is about to go.
      const bool again = why[k] == PageStatus::stale && trust != Trust::nothing && !page.of_device;
      page.status = again ? PageStatus::pending : why[k];
    }
  }
  set_apart(resident, cold, trust, apart);
  take(resident, cold, trust);
}

void GetPath::Run::take(ByHolder& resident, ByHolder& cold, Trust trust) {
  std::vector<Found> left = read_turn(resident, cold, trust);
  while (!left.empty()) left = further_turn(left, trust);
}

void GetPath::Run::set_apart(ByHolder& resident, ByHolder& cold, Trust trust,
                             std::deque<Apart>& apart) {
  std::set<HolderIndex> left;
  for (const ByHolder* some : {&resident, &cold})
    for (const auto& [holder, found] : *some) left.insert(holder);
  const std::set<HolderIndex> holders = left;
  for (const HolderIndex holder : holders) {
    if (left.size() == 1) return;  // nobody else would wait for it
    const bool in_steps = cold.contains(holder) || turn_bytes(holder, resident[holder]) != 0;
    if (!in_steps) continue;
    if (shared.threads_left.fetch_sub(1) <= 0) return;
    Apart& one = apart.emplace_back(*this, resident[holder], cold[holder]);
    try {
      one.thread = std::jthread([&one, trust] { one.read(trust); });
    } catch (const std::system_error&) {
      apart.pop_back();  // no thread available: the others wait for it
      return;
    }
    for (ByHolder* some : {&resident, &cold}) {
      // Until its thread has ended. It says how they end.
      for (const Found& found : (*some)[holder]) pages[found.page].status = PageStatus::deadline;
      some->erase(holder);
    }
    left.erase(holder);
  }
}

std::vector<GetPath::Run::Found> GetPath::Run::further_turn(std::span<const Found> left,
                                                            Trust trust) {
  std::vector<Digest> wanted;
  std::vector<HolderIndex> crowded_at;
  for (const Found& found : left) {
    wanted.push_back(digests[found.page]);
    crowded_at.push_back(found.row.holder);
  }
  std::vector<RecordRow> rows(wanted.size());
  std::vector<PageStatus> why(wanted.size());
  // Others have become holders meanwhile, which the location cache cannot know. If the owners do
  // not answer soon, the records that we have are as good as before.
  const Deadline soon{std::min(context.deadline.at, Clock::now() + kAnewWithin)};
  parts.locator.locate(wanted, crowded_at, Trust::nothing, soon, rows, why, context.trace);
  ByHolder resident, cold;
  for (size_t k = 0; k < left.size(); ++k) {
    const bool better = rows[k].holder != kNoHolder && (rows[k].flags & kRecordResident) != 0 &&
                        rows[k].length == left[k].row.length;
    sort_in({left[k].page, better ? rows[k] : left[k].row}, trust, resident, cold);
  }
  return read_turn(resident, cold, trust);
}

void GetPath::Run::sort_in(const Found& found, Trust trust, ByHolder& resident, ByHolder& cold) {
  const RecordRow& row = found.row;
  if (row.length != pages[found.page].length) {
    // The key may have been set anew since this was learnt.
    missed(found, PageStatus::length_mismatch, trust);
  } else if (parts.nodes.readable(row.holder)) {
    // The owners may not know yet that it is on that disk only.
    const auto left = gone.find(found.page);
    const bool is_gone =
        left != gone.end() && left->second == row.generation && failed[found.page] == row.holder;
    ByHolder& there = row.flags & kRecordResident && !is_gone ? resident : cold;
    there[row.holder].push_back(found);
  } else {
    missed(found, PageStatus::error, trust);
  }
}

std::vector<GetPath::Run::Found> GetPath::Run::read_turn(ByHolder& resident, ByHolder& cold,
                                                         Trust trust) {
  ByHolder behind = take_behind_slices(resident);
  promote_and_read(resident, cold, trust);
  std::vector<Found> left;
  for (const HolderIndex holder : crowded) {
    const auto more = behind.find(holder);
    if (more == behind.end()) continue;
    left.insert(left.end(), more->second.begin(), more->second.end());
    behind.erase(more);
  }
  read(behind, trust, Source::peer);
  return left;
}

uint64_t GetPath::Run::slice(HolderIndex holder, uint64_t bytes) {
  const uint64_t share = std::max(bytes / kSlices, kSliceBytesMin);
  return slices.try_emplace(holder, share).first->second;
}

uint64_t GetPath::Run::turn_bytes(HolderIndex holder, std::span<const Found> found) {
  uint64_t bytes = 0;
  for (const Found& one : found) bytes += one.row.length;
  const bool may_be_crowded =
      bytes >= kManyBytes || (bytes >= kSomeBytes && !parts.speeds.quick(holder, Clock::now()));
  if (!may_be_crowded && !crowded.contains(holder)) return 0;
  const uint64_t slice_bytes = slice(holder, bytes);
  return bytes <= slice_bytes ? 0 : slice_bytes;
}

GetPath::Run::ByHolder GetPath::Run::take_behind_slices(ByHolder& resident) {
  ByHolder behind;
  for (auto& [holder, found] : resident) {
    const uint64_t slice_bytes = turn_bytes(holder, found);
    if (slice_bytes == 0) continue;
    const auto place = [&](const Found& one) { return parts.speeds.place(one.row.digest); };
    std::ranges::sort(found, {}, place);
    size_t count = 0;
    for (uint64_t taken = 0; taken < slice_bytes; taken += found[count++].row.length) {
    }
    std::vector<Found>& rest = behind[holder];
    rest.assign(found.begin() + static_cast<ptrdiff_t>(count), found.end());
    found.resize(count);
    // The rest is read in the order of the request, because the time may run out.
    std::ranges::sort(rest, {}, &Found::page);
  }
  return behind;
}

void GetPath::Run::promote_and_read(const ByHolder& resident, ByHolder& cold, Trust trust) {
  std::deque<Asked> asked;
  ask(cold, asked);
  read(resident, trust, Source::peer);
  while (!asked.empty()) {
    ByHolder promoted;
    for (Asked& one : asked) take_answer(one, trust, promoted, cold);
    asked.clear();
    ask(cold, asked);
    read(promoted, trust, Source::peer_disk);
  }
}

void GetPath::Run::ask(ByHolder& cold, std::deque<Asked>& asked) {
  for (auto& [holder, left] : cold) {
    if (left.empty()) continue;
    size_t count = 0;
    uint64_t bytes = 0;
    while (count < left.size() && count < kPromotePages &&
           (count == 0 || bytes + left[count].row.length <= kPromoteBytes)) {
      bytes += left[count++].row.length;
    }
    std::vector<Found> some(left.begin(), left.begin() + static_cast<ptrdiff_t>(count));
    left.erase(left.begin(), left.begin() + static_cast<ptrdiff_t>(count));
    std::vector<Digest> wanted;
    for (const Found& found : some) wanted.push_back(digests[found.page]);
    asked.emplace_back(parts.control, holder, std::move(some), parts.running.changes(), wanted,
                       context.deadline);
  }
}

void GetPath::Run::take_answer(Asked& asked, Trust trust, ByHolder& promoted, ByHolder& cold) {
  TraceStep step(context.trace, "promote", asked.pages.size());
  const auto answer = asked.question.wait();
  if (!answer) {
    step.done(PageStatus::deadline, asked.holder);
    for (const Found& found : asked.pages) missed(found, PageStatus::deadline, trust);
    return;
  }
  std::vector<RecordRow> rows = items_of<RecordRow>(*answer);
  const auto given = std::count_if(rows.begin(), rows.end(), [](const RecordRow& row) {
    return row.flags != 0 && (row.flags & kRecordWithdraw) == 0;
  });
  step.done(rows.empty() ? PageStatus::absent : PageStatus::ok, asked.holder, asked.pages.size(),
            static_cast<size_t>(given));
  const auto by_digest = [](const RecordRow& a, const RecordRow& b) { return a.digest < b.digest; };
  std::sort(rows.begin(), rows.end(), by_digest);

  std::vector<Found> not_now;
  std::vector<Found>& there = promoted[asked.holder];
  for (const Found& found : asked.pages) {
    const auto row = std::lower_bound(rows.begin(), rows.end(), found.row, by_digest);
    if (row == rows.end() || row->digest != found.row.digest) {
      not_now.push_back(found);
    } else if (row->flags == 0) {
      not_read(found.page);
      not_now.push_back(found);
    } else if (row->flags & kRecordWithdraw || row->length != found.row.length) {
      missed(found, PageStatus::stale, trust);
    } else {
      row->holder = asked.holder;
      parts.locations.put(*row, Clock::now(), asked.removals);
      there.push_back({found.page, *row});
    }
  }
  std::vector<Found>& left = cold[asked.holder];
  if (there.empty()) {
    // The holder had no room and made none, so more questions would be in vain.
    for (const Found& found : not_now) missed(found, PageStatus::stale, trust);
    for (const Found& found : left) missed(found, PageStatus::stale, trust);
    left.clear();
  } else {
    left.insert(left.begin(), not_now.begin(), not_now.end());
  }
}

void GetPath::Run::read(const ByHolder& by_holder, Trust trust, Source source) {
  std::vector<ReadOp> ops;
  std::vector<const Found*> of_op;
  size_t count = 0;
  for (const auto& [holder, found] : by_holder) count += found.size();
  ops.reserve(count);
  std::vector<ReadBatch> batches;
  for (const auto& [holder, members] : by_holder) {
    if (members.empty()) continue;
    const size_t first = ops.size();
    for (const Found& found : members) {
      ReadOp& op = ops.emplace_back();
      op.digest = digests[found.page];
      op.offset = found.row.offset;
      op.generation = found.row.generation;
      op.length = found.row.length;
      op.dest = pages[found.page].memory;
      op.to_device = pages[found.page].of_device;
      of_op.push_back(&found);
    }
    batches.push_back(
        {holder, parts.nodes.incarnation(holder), std::span(ops).subspan(first, members.size())});
  }
  if (batches.empty()) return;
  TraceStep step(context.trace, "read");
  Stopwatch stopwatch(parts.verifier, batches, shared.landed_bytes);
  parts.reads.read(batches, context.deadline, *context.gate, stopwatch);
  stopwatch.tell(parts.speeds, crowded);
  for (const ReadBatch& batch : batches) {
    if (context.trace == nullptr) break;
    const auto ok = std::count_if(batch.ops.begin(), batch.ops.end(),
                                  [](const ReadOp& op) { return op.status == PageStatus::ok; });
    step.done(batch.ops[0].status, batch.peer, batch.ops.size(), static_cast<size_t>(ok));
  }

  for (size_t o = 0; o < ops.size(); ++o) {
    PageRef& page = pages[of_op[o]->page];
    if (ops[o].corrupt) parts.counters.corrupt_remote.fetch_add(1, std::memory_order_relaxed);
    if (ops[o].status == PageStatus::ok) {
      page.status = PageStatus::ok;
      hit(source);
      parts.counters.bytes_got.fetch_add(page.length, std::memory_order_relaxed);
    } else {
      if (ops[o].status == PageStatus::stale && !ops[o].corrupt)
        gone[of_op[o]->page] = of_op[o]->row.generation;
      missed(*of_op[o], ops[o].status, trust);
    }
  }
  // A replica in our pool would not help a worker with memory of a device.
  std::vector<RecordRow> hot;
  for (size_t o = 0; o < ops.size(); ++o)
    if (ops[o].status == PageStatus::ok && !ops[o].to_device) hot.push_back(of_op[o]->row);
  parts.hot.note(context.ns->id(), epoch, hot, Clock::now(), removals);
  keep_replicas(batches, of_op);
  for (const ReadBatch& batch : batches) {
    std::vector<Digest> used;
    for (const ReadOp& op : batch.ops)
      if (op.one_sided && op.status == PageStatus::ok) used.push_back(op.digest);
    if (!used.empty()) parts.used.note(batch.peer, used, Clock::now());
  }
}

// Of the pages that came from crowded holders: a slice of each at most, because the other readers
// keep others. of_op[o] belongs to the o-th operation of all batches.
void GetPath::Run::keep_replicas(std::span<const ReadBatch> batches,
                                 std::span<const Found* const> of_op) {
  for (const ReadBatch& batch : batches) {
    const auto found = of_op.first(batch.ops.size());
    of_op = of_op.subspan(batch.ops.size());
    if (!crowded.contains(batch.peer)) continue;
    std::vector<size_t> landed;
    uint64_t bytes = 0;
    for (size_t o = 0; o < batch.ops.size(); ++o) {
      if (batch.ops[o].status != PageStatus::ok || batch.ops[o].to_device) continue;
      landed.push_back(o);
      bytes += batch.ops[o].length;
    }
    std::ranges::sort(landed, {},
                      [&](size_t o) { return parts.speeds.place(batch.ops[o].digest); });
    Handover part{context.ns->id(), epoch, 0, 0, false, {}, removals, {}};
    std::vector<ReadOp> kept;
    const uint64_t slice_bytes = slice(batch.peer, bytes);
    for (uint64_t taken = 0; kept.size() < landed.size() && taken < slice_bytes;) {
      const size_t o = landed[kept.size()];
      kept.push_back(batch.ops[o]);
      part.rows.push_back(found[o]->row);
      taken += batch.ops[o].length;
    }
    if (kept.empty()) continue;
    TraceStep step(context.trace, "keep", kept.size());
    parts.adopter.keep_landed(batch.peer, std::move(part), kept, *context.gate, context.deadline);
    step.done(PageStatus::ok, batch.peer);
  }
}

}  // namespace peercached
