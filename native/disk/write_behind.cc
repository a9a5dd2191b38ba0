#include "disk/write_behind.h"

#include <algorithm>
#include <utility>

#include "common/thread_name.h"

namespace peercached::disk {

WriteBehind::WriteBehind(Log& log, Index& index, NamespaceNumbers& namespaces, Health& health,
                         const DiskConfig& config, uint64_t segment_bytes, uint64_t last_sequence)
    : log_(log),
      index_(index),
      namespaces_(namespaces),
      health_(health),
      queue_bytes_max_(config.queue_bytes),
      hurry_bytes_(std::clamp(config.queue_bytes / 8, kBatchBytes / 2, 8 * kBatchBytes)),
      page_bytes_max_(segment_bytes / 4),
      last_sequence_(last_sequence) {
  for (unsigned i = 0; i < kWriters; ++i) threads_.emplace_back([this, i] { run(i); });
}

PutOutcome WriteBehind::check(const DiskPage& page) {
  if (const auto found = index_.find(page.digest)) {
    if (found->page.length == page.length && found->page.checksum == page.checksum) {
      // Not under the index's mutex: the log holds its own mutex while it calls the index.
      const uint32_t head = log_.head();
      index_.change(page.digest, [&](IndexEntry& entry) {
        entry.touched = head;
        return Index::Verdict::keep;
      });
      return PutOutcome::present;
    }
    remove(page.digest);
  }
  if (page.length == 0 || page.length > page_bytes_max_) return PutOutcome::skipped_large;
  if (!health_.writable()) return PutOutcome::skipped_off;
  if (!namespaces_.live(page.namespace_id, page.epoch)) return PutOutcome::skipped_old;
  return PutOutcome::queued;
}

PutOutcome WriteBehind::put(const DiskPage& page, const std::byte* payload,
                            std::function<void(bool)> done) {
  PutOutcome outcome = check(page);
  bool wake = false;
  {
    MutexLock lock(mutex_);
    if (outcome == PutOutcome::queued) outcome = admit(page);
    if (outcome == PutOutcome::queued) outcome = queue(page, payload, std::move(done), wake);
    ++puts_[static_cast<size_t>(outcome)];
  }
  if (wake) wake_.notify_one();
  return outcome;
}

PutOutcome WriteBehind::admit(const DiskPage& page) const {
  if (queued_bytes_ + page.length > queue_bytes_max_) return PutOutcome::skipped_full;
  if (stopping_) return PutOutcome::skipped_off;
  // Every new page enters the index under the mutex held here. So two pages cannot both take the
  // last room of a quota.
  return namespaces_.admit(page.namespace_id, page.length) ? PutOutcome::queued
                                                           : PutOutcome::skipped_quota;
}

// `wake`: whether a writer has to be woken.
PutOutcome WriteBehind::queue(const DiskPage& page, const std::byte* payload,
                              std::function<void(bool)> done, bool& wake) {
  // Fails if another thread was faster.
  if (!index_.insert(page, {.sequence = last_sequence_ + 1})) return PutOutcome::present;
  QueuedPage queued;
  queued.item.entry = page_entry(page, ++last_sequence_);
  queued.item.payload = payload;
  queued.item.done = std::move(done);
  queued.since = Clock::now();
  const bool first = pages_.empty();
  const uint64_t before = waiting_bytes_ / hurry_bytes_;
  waiting_bytes_ += page.length;
  queued_bytes_ += page.length;
  ++queued_pages_;
  pages_.push_back(std::move(queued));
  wake = first || waiting_bytes_ / hurry_bytes_ != before;
  return PutOutcome::queued;
}

void WriteBehind::remove(const Digest& digest) {
  MutexLock lock(mutex_);
  removed_ += erase(digest, [](const IndexEntry&) { return true; });
}

void WriteBehind::give_up(const Digest& digest, uint64_t sequence, uint32_t segment) {
  MutexLock lock(mutex_);
  erase(digest, [&](const IndexEntry& entry) {
    return entry.sequence == sequence && entry.segment == segment;
  });
}

// Removes it from the index and queues a removal. Every new record gets its sequence under the
// mutex. So the removal is older than any later put of this digest.
template <typename Condition>
bool WriteBehind::erase(const Digest& digest, Condition&& condition) {
  bool erased = false;
  index_.change(digest, [&](const IndexEntry& entry) {
    erased = condition(entry);
    return erased ? Index::Verdict::erase : Index::Verdict::keep;
  });
  if (!erased) return false;
  FooterEntry entry;
  entry.digest = digest;
  entry.kind = RecordKind::removal;
  queue_removal(entry);
  return true;
}

void WriteBehind::clear(const Digest& namespace_id, uint64_t below_epoch) {
  if (!namespaces_.raise_floor(namespace_id, below_epoch)) return;
  FooterEntry entry;
  entry.namespace_id = namespace_id;
  entry.epoch = below_epoch;
  entry.kind = RecordKind::clear;
  MutexLock lock(mutex_);
  entry.sequence = ++last_sequence_;
  clears_[namespace_id].entry = entry;
  wake_.notify_one();
}

void WriteBehind::queue_removal(FooterEntry entry) {
  entry.sequence = ++last_sequence_;
  LogItem item;
  item.entry = entry;
  removals_.push_back(std::move(item));
  if (removals_.size() == 1) wake_.notify_one();
}

bool WriteBehind::flush(Deadline deadline) {
  MutexLock lock(mutex_);
  const uint64_t upto = last_sequence_;
  hurry_ = true;
  wake_.notify_all();
  while (oldest_outstanding() <= upto && settled_.wait_until(mutex_, deadline.at)) {
  }
  hurry_ = false;
  return oldest_outstanding() > upto;
}

void WriteBehind::writable_again() {
  MutexLock lock(mutex_);
  wake_.notify_all();
}

void WriteBehind::drain(Deadline deadline) {
  MutexLock lock(mutex_);
  stopping_ = true;
  stop_by_ = deadline;
  wake_.notify_all();
  // In steps, because the disk may become unwritable meanwhile.
  while (oldest_outstanding() != UINT64_MAX && health_.writable() && !deadline.passed()) {
    settled_.wait_until(mutex_,
                        std::min(deadline.at, Clock::now() + std::chrono::milliseconds(50)));
  }
}

void WriteBehind::join() {
  {
    MutexLock lock(mutex_);
    stop_by_ = Deadline{};
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void WriteBehind::add_to(DiskStats& stats) const {
  MutexLock lock(mutex_);
  stats.queued_pages = queued_pages_;
  stats.queued_bytes = queued_bytes_;
  stats.page_bytes_max = page_bytes_max_;
  stats.skipped_full = puts_[static_cast<size_t>(PutOutcome::skipped_full)];
  stats.skipped_off = puts_[static_cast<size_t>(PutOutcome::skipped_off)];
  stats.skipped_old = puts_[static_cast<size_t>(PutOutcome::skipped_old)];
  stats.skipped_large = puts_[static_cast<size_t>(PutOutcome::skipped_large)];
  stats.skipped_quota = puts_[static_cast<size_t>(PutOutcome::skipped_quota)];
  stats.removed = removed_;
  stats.removals_waiting = removals_.size() + clears_.size();
}

void WriteBehind::run(unsigned writer) {
  name_thread("disk write");
  run_as_batch();
  AlignedBuffer buffer(kBatchBytes);
  IoClock& clock = health_.add_clock();
  MutexLock lock(mutex_);
  while (wait_for_work()) {
    std::vector<LogItem> items = take_batch();
    in_hand_[writer] = UINT64_MAX;
    for (const LogItem& item : items)
      in_hand_[writer] = std::min(in_hand_[writer], item.entry.sequence);
    if (!pages_.empty()) wake_.notify_one();
    {
      MutexUnlock unlocked(mutex_);
      append(items, buffer, clock);
      finish(items);
      buffer.shrink(kBatchBytes);
    }
    in_hand_[writer] = 0;
    settled_.notify_all();
  }
}

// False: the thread should end.
bool WriteBehind::wait_for_work() {
  for (;;) {
    const bool may_write = health_.writable() && !(stopping_ && stop_by_.passed());
    // Take pages even when nothing can be written, in order to release them.
    const bool work = !pages_.empty() || (may_write && (!removals_.empty() || !clears_.empty()));
    if (work) {
      const bool enough =
          waiting_bytes_ >= hurry_bytes_ || hurry_ || stopping_ || !may_write || pages_.empty();
      const TimePoint linger_until =
          enough ? TimePoint{} : pages_.front().since + std::chrono::milliseconds(kLingerMs);
      if (enough || Clock::now() >= linger_until) return true;
      wake_.wait_until(mutex_, linger_until);
    } else if (stopping_) {
      return false;
    } else {
      wake_.wait(mutex_);
    }
  }
}

std::vector<LogItem> WriteBehind::take_batch() {
  std::vector<LogItem> items;
  uint64_t bytes = 0;
  const auto fits = [&](const LogItem& item) {
    const uint64_t more = record_bytes(item.entry.length);
    if (bytes > 0 && bytes + more > kBatchBytes) return false;
    bytes += more;
    return true;
  };
  if (health_.writable()) {
    while (!removals_.empty() && fits(removals_.front())) {
      items.push_back(std::move(removals_.front()));
      removals_.pop_front();
    }
    while (!clears_.empty() && fits(clears_.begin()->second)) {
      items.push_back(std::move(clears_.begin()->second));
      clears_.erase(clears_.begin());
    }
  }
  while (!pages_.empty() && fits(pages_.front().item)) {
    waiting_bytes_ -= pages_.front().item.entry.length;
    items.push_back(std::move(pages_.front().item));
    pages_.pop_front();
  }
  return items;
}

void WriteBehind::append(std::vector<LogItem>& items, AlignedBuffer& buffer, IoClock& clock) {
  for (std::span<LogItem> left = items; !left.empty();) {
    const size_t settled = log_.append(left, Log::Kind::fresh, buffer, clock);
    if (settled == 0) return;
    left = left.subspan(settled);
  }
}

void WriteBehind::finish(std::vector<LogItem>& items) {
  // Backwards, so that requeued removals keep their order.
  for (auto at = items.rbegin(); at != items.rend(); ++at) {
    LogItem& item = *at;
    const bool written = item.outcome == LogItem::Outcome::written;
    if (item.entry.kind != RecordKind::page) {
      if (!written) again(item);
      continue;
    }
    if (!written) not_written(item);
    item.done(written);
    MutexLock lock(mutex_);
    queued_bytes_ -= item.entry.length;
    --queued_pages_;
  }
}

// Requeues it, unless a later clear of its namespace is queued.
void WriteBehind::again(LogItem& item) {
  item.outcome = LogItem::Outcome::pending;
  item.segment = nullptr;
  MutexLock lock(mutex_);
  if (item.entry.kind == RecordKind::clear) {
    clears_.try_emplace(item.entry.namespace_id, std::move(item));
  } else {
    removals_.push_front(std::move(item));
  }
}

// A failed write may still have put the page on disk, so it needs a removal too.
void WriteBehind::not_written(const LogItem& item) {
  const auto ours = [&](const IndexEntry& entry) {
    return entry.sequence == item.entry.sequence && !entry.on_disk();
  };
  MutexLock lock(mutex_);
  if (item.outcome == LogItem::Outcome::failed) {
    erase(item.entry.digest, ours);
  } else {
    index_.change(item.entry.digest, [&](const IndexEntry& entry) {
      return ours(entry) ? Index::Verdict::erase : Index::Verdict::keep;
    });
  }
}

// The lowest sequence that is not settled; UINT64_MAX: none.
uint64_t WriteBehind::oldest_outstanding() const {
  uint64_t oldest = UINT64_MAX;
  if (!pages_.empty()) oldest = pages_.front().item.entry.sequence;
  if (!removals_.empty()) oldest = std::min(oldest, removals_.front().entry.sequence);
  for (const auto& [id, item] : clears_) oldest = std::min(oldest, item.entry.sequence);
  for (const uint64_t sequence : in_hand_) {
    if (sequence != 0) oldest = std::min(oldest, sequence);
  }
  return oldest;
}

}  // namespace peercached::disk
