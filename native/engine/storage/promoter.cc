#include "engine/storage/promoter.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/thread_name.h"

namespace peercached {

namespace {

constexpr uint64_t kBudgetShare = 4;  // promotions may pin 1/4 of the pool
constexpr uint64_t kBatchShare = 8;   // one batch may take 1/8 of the pool
constexpr uint64_t kBatchBytesMax = 32 << 20;
constexpr size_t kWarmQueueMax = 16'384;  // pages
constexpr size_t kWarmPages = 64;         // pages read at a time
constexpr int64_t kWarmMs = 5'000;
// The tries for one page. Another thread may have reserved the page, and fail to bring it.
constexpr int kTurnsMax = 4;

}  // namespace

Promotions::~Promotions() {
  promoter_.pool_.give_back(pages);
  promoter_.give_budget(budget_bytes_);
}

Promoter::Promoter(Pool& pool, NamespaceTable& namespaces, DiskPages& disk)
    : pool_(pool),
      namespaces_(namespaces),
      disk_(disk),
      budget_bytes_max_(pool.size_bytes() / kBudgetShare),
      batch_bytes_max_(std::min(pool.size_bytes() / kBatchShare, kBatchBytesMax)) {
  if (disk_.enabled())
    warmer_ = std::thread([this] {
      name_thread("warm up");
      warm_in_background();
    });
}

Promoter::~Promoter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  warm_wake_.notify_all();
  room_.notify_all();
  if (warmer_.joinable()) warmer_.join();
}

// One batch in progress.
struct Promoter::Batch {
  Promoter& promoter;
  std::span<const Digest> digests;
  Urgency urgency;
  Deadline deadline;
  Promotions& out;

  std::vector<size_t> missing{};  // indices of pages that are on disk only
  std::vector<DiskPage> on_disk{};
  std::vector<size_t> reserved{}, busy{};  // positions in missing and on_disk

  void pin_what_is_here();
  void find();
  bool take_room();
  void reserve(std::span<const size_t> wanted);
  void read();
  // Returns the pages that other threads had reserved and did not bring. We want these again: those
  // threads had other deadlines.
  std::vector<size_t> wait_for_others();
};

void Promoter::Batch::pin_what_is_here() {
  promoter.pool_.pin(digests, nullptr, true, out.pages);
  for (size_t i = 0; i < digests.size(); ++i) {
    if (out.pages[i]) out.statuses[i] = PromoteStatus::in_pool;
  }
}

void Promoter::Batch::find() {
  for (size_t i = 0; i < digests.size(); ++i) {
    if (out.statuses[i] != PromoteStatus::pending) continue;
    const auto page = promoter.disk_.find(digests[i]);
    if (!page) {
      out.statuses[i] = PromoteStatus::absent;
      continue;
    }
    missing.push_back(i);
    on_disk.push_back(*page);
  }
}

// Takes budget for the first pages, as many as a batch may have. False: there was no room in time.
bool Promoter::Batch::take_room() {
  uint64_t bytes = 0;
  size_t count = 0;
  while (count < missing.size() &&
         (count == 0 || bytes + on_disk[count].length <= promoter.batch_bytes_max_)) {
    bytes += on_disk[count++].length;
  }
  for (size_t k = count; k < missing.size(); ++k) out.statuses[missing[k]] = PromoteStatus::not_now;
  missing.resize(count);
  on_disk.resize(count);
  out.budget_bytes_ = promoter.take_budget(bytes, urgency, deadline);
  if (out.budget_bytes_ != 0) return true;
  for (size_t i : missing) out.statuses[i] = PromoteStatus::not_now;
  return false;
}

void Promoter::Batch::reserve(std::span<const size_t> wanted) {
  reserved.clear();
  busy.clear();
  std::map<uint32_t, std::vector<size_t>> by_namespace;  // pool slot -> positions
  for (size_t k : wanted) {
    const uint32_t slot =
        promoter.namespaces_.pool_slot_of(on_disk[k].namespace_id, on_disk[k].epoch);
    if (slot == 0) {
      out.statuses[missing[k]] = PromoteStatus::absent;
    } else {
      by_namespace[slot].push_back(k);
    }
  }
  for (const auto& [slot, positions] : by_namespace) {
    std::vector<PageRequest> requests;
    for (size_t k : positions) requests.push_back({on_disk[k].digest, on_disk[k].length});
    std::vector<Reservation> reservations(requests.size());
    const DiskPage& first = on_disk[positions[0]];
    HeldSlots held(promoter.pool_, requests, nullptr, {slot, first.namespace_id, first.epoch},
                   reservations, Replace::no);
    for (size_t r = 0; r < positions.size(); ++r) {
      const size_t k = positions[r], i = missing[k];
      out.pages[i] = std::exchange(held.pages()[r], {});
      switch (reservations[r].outcome) {
        case ReserveOutcome::reserved:
          reserved.push_back(k);
          break;
        case ReserveOutcome::present:  // came in meanwhile
          out.statuses[i] = PromoteStatus::in_pool;
          break;
        case ReserveOutcome::busy:
          busy.push_back(k);
          break;
        case ReserveOutcome::newer:
          out.statuses[i] = PromoteStatus::absent;
          break;
        case ReserveOutcome::no_space:
        case ReserveOutcome::too_large:
          out.statuses[i] = PromoteStatus::not_now;
          break;
      }
    }
  }
  std::sort(reserved.begin(), reserved.end());
}

void Promoter::Batch::read() {
  if (reserved.empty()) return;
  std::vector<DiskRead> reads(reserved.size());
  for (size_t r = 0; r < reserved.size(); ++r) {
    const size_t k = reserved[r];
    reads[r].digest = on_disk[k].digest;
    reads[r].dest = out.pages[missing[k]].payload();
    reads[r].length = on_disk[k].length;
  }
  promoter.disk_.tier().read(reads, deadline, urgency == Urgency::somebody_waits);

  std::vector<size_t> good;
  std::vector<DiskPage> sources;
  HeldSlots pages(promoter.pool_), bad(promoter.pool_);
  for (size_t r = 0; r < reserved.size(); ++r) {
    const size_t k = reserved[r], i = missing[k];
    if (reads[r].status == PageStatus::ok && reads[r].checksum == on_disk[k].checksum) {
      good.push_back(i);
      sources.push_back(on_disk[k]);
      pages.take(out.pages[i]);
      continue;
    }
    bad.take(out.pages[i]);
    out.statuses[i] = reads[r].status == PageStatus::deadline ? PromoteStatus::late
                      : reads[r].status == PageStatus::error  ? PromoteStatus::failed
                                                              : PromoteStatus::absent;
  }
  bad = HeldSlots(promoter.pool_);
  promoter.disk_.promoted(sources, pages.pages(), urgency == Urgency::somebody_waits);
  uint64_t promoted = 0, bytes = 0;
  for (size_t g = 0; g < good.size(); ++g) {
    const PinnedPage page = std::exchange(pages.pages()[g], {});
    out.pages[good[g]] = page;
    out.statuses[good[g]] = page ? PromoteStatus::in_pool : PromoteStatus::absent;
    promoted += page ? 1 : 0;
    bytes += page.length;
  }
  std::lock_guard lock(promoter.mutex_);
  promoter.counters_.promoted += promoted;
  promoter.counters_.promoted_bytes += bytes;
  if (urgency == Urgency::warming) promoter.counters_.warmed += promoted;
}

std::vector<size_t> Promoter::Batch::wait_for_others() {
  std::vector<size_t> again;
  for (size_t k : busy) {
    const size_t i = missing[k];
    if (!promoter.pool_.wait_settled(digests[i], deadline)) {
      out.statuses[i] = PromoteStatus::late;
      continue;
    }
    promoter.pool_.pin({&digests[i], 1}, nullptr, true, {&out.pages[i], 1});
    if (out.pages[i]) {
      out.statuses[i] = PromoteStatus::in_pool;
    } else {
      again.push_back(k);
    }
  }
  return again;
}

Promotions Promoter::promote(std::span<const Digest> digests, Urgency urgency, Deadline deadline) {
  Promotions out(*this);
  out.pages.resize(digests.size());
  out.statuses.assign(digests.size(), PromoteStatus::pending);
  Batch batch{*this, digests, urgency, deadline, out};
  batch.pin_what_is_here();
  batch.find();
  if (!batch.missing.empty() && batch.take_room()) {
    std::vector<size_t> wanted(batch.missing.size());
    std::iota(wanted.begin(), wanted.end(), size_t{0});
    for (int turn = 0; turn < kTurnsMax && !wanted.empty(); ++turn) {
      batch.reserve(wanted);
      batch.read();
      wanted = batch.wait_for_others();
    }
    for (size_t k : wanted) out.statuses[batch.missing[k]] = PromoteStatus::not_now;
  }
  std::lock_guard lock(mutex_);
  for (PromoteStatus status : out.statuses) {
    counters_.not_now += status == PromoteStatus::not_now;
    counters_.late += status == PromoteStatus::late;
    counters_.failed += status == PromoteStatus::failed;
    counters_.absent += status == PromoteStatus::absent;
  }
  return out;
}

uint64_t Promoter::take_budget(uint64_t bytes, Urgency urgency, Deadline deadline) {
  // A single page above the whole budget goes through alone.
  bytes = std::clamp<uint64_t>(bytes, 1, budget_bytes_max_);
  std::unique_lock lock(mutex_);
  const bool waits = urgency == Urgency::somebody_waits;
  readers_waiting_ += waits;
  const bool room = room_.wait_until(lock, deadline.at, [&] {
    if (stopping_) return true;
    if (budget_used_ == 0) return waits || readers_waiting_ == 0;
    if (waits) return budget_used_ + bytes <= budget_bytes_max_;
    return readers_waiting_ == 0 && budget_used_ + bytes <= budget_bytes_max_ / 2;
  });
  readers_waiting_ -= waits;
  if (waits && readers_waiting_ == 0) room_.notify_all();
  if (!room || stopping_) return 0;
  budget_used_ += bytes;
  return bytes;
}

void Promoter::give_budget(uint64_t bytes) {
  if (bytes == 0) return;
  {
    std::lock_guard lock(mutex_);
    budget_used_ -= bytes;
  }
  room_.notify_all();
}

void Promoter::warm(std::span<const Digest> digests) {
  if (!disk_.enabled()) return;
  std::vector<PageRequest> wanted;
  for (const Digest& digest : digests) {
    if (const auto page = disk_.find(digest)) wanted.push_back({digest, page->length});
  }
  if (wanted.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (const PageRequest& page : wanted) {
      if (warm_queued_.contains(page.digest)) continue;
      if (warm_queue_.size() >= kWarmQueueMax || warm_bytes_ + page.length > budget_bytes_max_) {
        ++counters_.warm_dropped;
        continue;
      }
      warm_queued_.insert(page.digest);
      warm_queue_.push_back(page);
      warm_bytes_ += page.length;
    }
  }
  warm_wake_.notify_one();
}

void Promoter::warm_in_background() {
  std::unique_lock lock(mutex_);
  while (true) {
    warm_wake_.wait(lock, [&] { return stopping_ || !warm_queue_.empty(); });
    if (stopping_) return;
    std::vector<Digest> some;
    uint64_t bytes = 0;
    while (!warm_queue_.empty() && some.size() < kWarmPages) {
      const PageRequest page = warm_queue_.front();
      if (!some.empty() && bytes + page.length > batch_bytes_max_) break;
      some.push_back(page.digest);
      bytes += page.length;
      warm_queued_.erase(page.digest);
      warm_queue_.pop_front();
    }
    warm_bytes_ -= bytes;
    lock.unlock();
    promote(some, Urgency::warming, Deadline::after_ms(kWarmMs));
    lock.lock();
  }
}

PromoterStats Promoter::stats() const {
  std::lock_guard lock(mutex_);
  PromoterStats stats = counters_;
  stats.warm_queued = warm_queue_.size();
  return stats;
}

}  // namespace peercached
