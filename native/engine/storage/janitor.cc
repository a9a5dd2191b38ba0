#include "engine/storage/janitor.h"

#include <algorithm>
#include <utility>

#include "common/thread_name.h"

namespace peercached {

namespace {

constexpr size_t kSweepPages = 4096;
constexpr size_t kSweepRecords = 32 * 1024;
constexpr std::chrono::seconds kRetryRemovals{1};

}  // namespace

void Janitor::start(const Parts& parts) {
  thread_ = std::thread([this, parts] {
    name_thread("janitor");
    run(parts);
  });
}

void Janitor::stop() {
  ask([&] { stopping_ = true; });
  if (thread_.joinable()) thread_.join();
}

void Janitor::sweep_namespace(uint32_t pool_slot) {
  ask([&] { stale_namespaces_.push_back(pool_slot); });
}

void Janitor::drop_from_disk(const Digest& namespace_id, uint64_t epoch) {
  ask([&] { stale_on_disk_[namespace_id] = epoch; });
}

void Janitor::sweep_records() {
  ask([&] { sweep_records_ = true; });
}

void Janitor::watch_holds() {
  ask([&] { watch_holds_ = true; });
}

void Janitor::write_removals() {
  ask([&] { write_removals_ = true; });
}

template <typename Change>
void Janitor::ask(const Change& change) {
  {
    std::lock_guard lock(mutex_);
    change();
  }
  wake_.notify_one();
}

void Janitor::run(const Parts& parts) {
  TimePoint holds_due = TimePoint::max(), removals_due = TimePoint::max();
  while (wait(std::min(holds_due, removals_due))) {
    take(watch_holds_);
    const TimePoint now = Clock::now();
    holds_due = std::min(parts.holds.expire(now), parts.retains.expire(now));
    if (take(write_removals_) || removals_due <= Clock::now()) {
      removals_due = parts.disk.write_waiting() ? TimePoint::max() : Clock::now() + kRetryRemovals;
    }
    // One piece of the long work at a time, so that holds do not wait for all of it.
    if (!drop_stale_from_disk(parts.disk) && !sweep_a_namespace(parts.pool, parts.disk))
      sweep_some_records(parts.records);
  }
}

bool Janitor::wait(TimePoint due) {
  std::unique_lock lock(mutex_);
  const auto wanted = [&] {
    return stopping_ || watch_holds_ || sweep_records_ || write_removals_ ||
           !stale_namespaces_.empty() || !stale_on_disk_.empty();
  };
  if (due == TimePoint::max()) {
    wake_.wait(lock, wanted);
  } else {
    wake_.wait_until(lock, due, wanted);
  }
  return !stopping_;
}

bool Janitor::drop_stale_from_disk(DiskPages& disk) {
  std::map<Digest, uint64_t> stale;
  {
    std::lock_guard lock(mutex_);
    stale = std::exchange(stale_on_disk_, {});
  }
  if (stale.empty()) return false;
  disk.drop_below(stale);
  return true;
}

bool Janitor::sweep_a_namespace(Pool& pool, DiskPages& disk) {
  uint32_t slot = 0;
  {
    std::lock_guard lock(mutex_);
    if (stale_namespaces_.empty()) return false;
    slot = stale_namespaces_.back();
    stale_namespaces_.pop_back();
  }
  std::vector<RecordRow> rows;
  const size_t dropped = pool.sweep_namespace(slot, kSweepPages, rows);
  disk.left_pool(rows);
  if (dropped != 0) sweep_namespace(slot);
  return true;
}

void Janitor::sweep_some_records(RecordTable& records) {
  if (take(sweep_records_) && records.sweep(kSweepRecords) > 0) sweep_records();
}

bool Janitor::take(bool& asked) {
  std::lock_guard lock(mutex_);
  return std::exchange(asked, false);
}

}  // namespace peercached
