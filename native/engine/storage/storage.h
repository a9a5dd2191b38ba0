// The pages on this node: the pool, the disk tier below it, and all that decides which pages may be
// there. Opens them at the start, and recovers the pages of an earlier one.
//
// The parts are thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/types.h"
#include "engine/control/config.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/holds.h"
#include "engine/storage/janitor.h"
#include "engine/storage/namespaces.h"
#include "engine/storage/object_index.h"
#include "engine/storage/promoter.h"
#include "engine/storage/quotas.h"
#include "engine/storage/retains.h"
#include "pool/pool.h"
#include "removals/journal.h"

namespace peercached {

class Storage {
 public:
  // `tell` sends records to the owners. It is not called before begin_withdrawing(). Throws
  // std::runtime_error, DiskError and the like, with the remedy.
  Storage(const EngineConfig& config, Janitor& janitor, DiskPages::Tell tell);
  ~Storage() { end(); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // From now on owners are told of pages that leave the pool or the disk. They were told of none
  // before.
  void begin_withdrawing() { withdraws_by_.store(disk_.get(), std::memory_order_release); }
  // Writes down what a restart needs: the order of the pool, and the disk's queue.
  void flush();
  // Ends promotions and the disk tier. Call when nobody reads or sets any more.
  void end();

  Pool& pool() { return *pool_; }
  DiskPages& disk() { return *disk_; }
  Promoter& promoter() { return *promoter_; }
  HoldTable& holds() { return *holds_; }
  RetainTable& retains() { return *retains_; }
  Quotas& quotas() { return *quotas_; }
  NamespaceTable& namespaces() { return namespaces_; }
  Journal& journal() { return journal_; }
  ObjectIndex& objects() { return objects_; }

  // Clears a namespace: its pages below that epoch are not found from now on, and swept later.
  // False: the epoch is not new.
  bool raise_epoch(const Digest& namespace_id, uint64_t epoch);
  // `tell` hears of each raise, on any thread. Call once, at the start.
  void on_epoch(std::function<void(const Digest&, uint64_t)> tell) { on_epoch_ = std::move(tell); }
  // A disk folder or pool file was last used with a later state of state_dir, or with another one.
  bool state_is_old() const { return state_is_old_.load(std::memory_order_relaxed); }

 private:
  // The journal of removals judges pages that outlived the last process. Empty functions without a
  // journal.
  struct Judges {
    std::function<std::string(const TierNote&)> why_not;
    RemovalJudge is_void;
  };
  Judges judge_by_journal(const EngineConfig& config);
  std::unique_ptr<DiskTier> open_disk(const EngineConfig& config, const Judges& judges);
  std::unique_ptr<Pool> open_pool(const EngineConfig& config, const Judges& judges);

  Janitor& janitor_;
  const bool has_disk_;
  NamespaceTable namespaces_;
  Journal journal_;
  ObjectIndex objects_;
  std::atomic<bool> state_is_old_{false};
  std::function<void(const Digest&, uint64_t)> on_epoch_;
  std::atomic<DiskPages*> withdraws_by_{nullptr};
  std::unique_ptr<DiskPages> disk_;  // outlives pool_, which may evict until its end
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Quotas> quotas_;
  std::unique_ptr<HoldTable> holds_;
  std::unique_ptr<RetainTable> retains_;
  std::unique_ptr<Promoter> promoter_;
};

}  // namespace peercached
