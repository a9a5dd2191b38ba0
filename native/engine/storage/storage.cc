#include "engine/storage/storage.h"

#include <algorithm>
#include <future>
#include <utility>

namespace peercached {

namespace {

constexpr size_t kHoldsMax = 1 << 18;
constexpr size_t kRetainsMax = 1 << 18;
constexpr uint64_t kHoldsShare = 4;        // at most 1/4 of the pool may be held
constexpr uint64_t kWriteBehindShare = 4;  // at most 1/4 of the pool may wait to be written
constexpr uint64_t kWriteBehindBytesMax = 512 << 20;
constexpr int64_t kFlushMs = 2'000;  // time for the disk when we stop

JournalConfig journal_of(const EngineConfig& config) {
  JournalConfig journal;
  journal.path = config.removals_path;
  journal.identity = store_identity(config.cluster_key, config.node_id);
  journal.sync = config.disk.sync == SyncPolicy::batch;
  return journal;
}

}  // namespace

Storage::Storage(const EngineConfig& config, Janitor& janitor, DiskPages::Tell tell)
    : janitor_(janitor),
      has_disk_(!config.disk.path.empty()),
      namespaces_(config.cluster_key),
      journal_(journal_of(config)) {
  const Judges judges = judge_by_journal(config);
  // Recovers the disk while the pool's memory is being touched.
  std::future<std::unique_ptr<DiskTier>> disk;
  if (has_disk_) disk = std::async(std::launch::async, [&] { return open_disk(config, judges); });
  for (const auto& [id, epoch] : config.epochs) raise_epoch(id, epoch);
  pool_ = open_pool(config, judges);
  disk_ = std::make_unique<DiskPages>(*pool_, namespaces_, journal_, std::move(tell));
  // Quotas first: the disk's epochs may void pages from the pool's file.
  quotas_ = std::make_unique<Quotas>(*pool_, *disk_);
  namespaces_.on_slot([this](const Namespace& ns, uint32_t slot) { quotas_->opened(ns, slot); });
  namespaces_.forget_unused([this](uint32_t slot) { return pool_->use_of(slot).bytes != 0; },
                            [this](uint32_t slot) { quotas_->void_slot(slot); });
  if (has_disk_) {
    disk_->start(disk.get());
    // An epoch above ours is believed: this node was told of it when it wrote those pages.
    for (const auto& [id, epoch] : disk_->epochs()) raise_epoch(id, epoch);
  }
  // A tier that was further than the journal is empty now. A later copy of it may still come back.
  if (state_is_old()) journal_.forget();
  if (!config.removals_path.empty()) disk_->note_removals();
  holds_ = std::make_unique<HoldTable>(*pool_, kHoldsMax, pool_->size_bytes() / kHoldsShare);
  retains_ = std::make_unique<RetainTable>(*pool_, kRetainsMax);
  promoter_ = std::make_unique<Promoter>(*pool_, namespaces_, *disk_);
}

Storage::Judges Storage::judge_by_journal(const EngineConfig& config) {
  if (config.removals_path.empty()) return {};
  const auto why_not = [this](const TierNote& note) {
    std::string why = journal_.why_not(note);
    if (!why.empty()) state_is_old_.store(true, std::memory_order_relaxed);
    return why;
  };
  const auto is_void = [past = std::make_shared<const Past>(journal_.past())](const Digest& digest,
                                                                              Position set_at) {
    return past->is_void(digest, set_at);
  };
  return {why_not, is_void};
}

std::unique_ptr<DiskTier> Storage::open_disk(const EngineConfig& config, const Judges& judges) {
  DiskConfig disk = config.disk;
  disk.why_not = judges.why_not;
  disk.is_void = judges.is_void;
  disk.identity = store_identity(config.cluster_key, config.node_id);
  disk.faults = config.faults;
  disk.queue_bytes = std::min(config.pool_bytes / kWriteBehindShare, kWriteBehindBytesMax);
  return open_disk_tier(disk, [this](std::span<const DiskPage> pages) {
    if (DiskPages* ours = withdraws_by_.load(std::memory_order_acquire)) ours->left_disk(pages);
  });
}

std::unique_ptr<Pool> Storage::open_pool(const EngineConfig& config, const Judges& judges) {
  PoolConfig pool;
  pool.size_bytes = config.pool_bytes;
  pool.incarnation = config.incarnation;
  pool.huge_pages = config.huge_pages;
  pool.file = {config.pool_file, store_identity(config.cluster_key, config.node_id),
               config.why_epochs_unknown, judges.why_not};
  pool.position = [this] { return journal_.last(); };
  pool.is_void = judges.is_void;
  return std::make_unique<Pool>(
      pool,
      [this](std::span<const RecordRow> rows) {
        if (DiskPages* disk = withdraws_by_.load(std::memory_order_acquire)) disk->left_pool(rows);
      },
      [this](std::span<PageNamespace> found) { namespaces_.judge(found); });
}

void Storage::flush() {
  pool_->remember_order();
  if (disk_->enabled()) disk_->tier().flush(Deadline::after_ms(kFlushMs));
}

void Storage::end() {
  promoter_.reset();
  disk_->end();  // writes its queue out, and may report lost pages
  withdraws_by_.store(nullptr, std::memory_order_release);
}

bool Storage::raise_epoch(const Digest& namespace_id, uint64_t epoch) {
  uint32_t stale_slot = 0;
  if (!namespaces_.raise(namespace_id, epoch, stale_slot)) return false;
  if (on_epoch_) on_epoch_(namespace_id, epoch);
  if (has_disk_) janitor_.drop_from_disk(namespace_id, epoch);
  if (stale_slot != 0) {
    quotas_->void_slot(stale_slot);
    janitor_.sweep_namespace(stale_slot);
  }
  return true;
}

}  // namespace peercached
