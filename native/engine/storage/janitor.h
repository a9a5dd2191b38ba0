// The housekeeping thread. It sweeps void pages (of cleared namespaces) and void records (of nodes
// that are gone), ends holds, and retries entries that the journal of removals could not take.
//
// Anybody may ask for work, also before start(). Nobody waits for it. Thread safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "directory/record_table.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/holds.h"
#include "engine/storage/retains.h"
#include "pool/pool.h"

namespace peercached {

class Janitor {
 public:
  // The thread works on these from start() until stop().
  struct Parts {
    Pool& pool;
    DiskPages& disk;
    HoldTable& holds;
    RetainTable& retains;
    RecordTable& records;
  };

  Janitor() = default;
  ~Janitor() { stop(); }
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  void start(const Parts& parts);
  void stop();  // leaves waiting work undone

  // --- work
  // The pages of this pool slot are void.
  void sweep_namespace(uint32_t pool_slot);
  // The namespace's pages on disk below this epoch are void.
  void drop_from_disk(const Digest& namespace_id, uint64_t epoch);
  // There are void records, or too little room for new ones.
  void sweep_records();
  // Pages were held or retained, perhaps for a shorter time than the others.
  void watch_holds();
  // The journal lacks entries. Tries again every second until it has them.
  void write_removals();

 private:
  // Changes the waiting work, and wakes the thread.
  template <typename Change>
  void ask(const Change& change);
  bool wait(TimePoint due);  // for work, or until `due`; false: stopping
  void run(const Parts& parts);
  // Each does one piece of its work. False: there was none of it.
  bool drop_stale_from_disk(DiskPages& disk);
  bool sweep_a_namespace(Pool& pool, DiskPages& disk);
  void sweep_some_records(RecordTable& records);
  bool take(bool& asked);  // whether it was asked for; resets it

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<uint32_t> stale_namespaces_;
  std::map<Digest, uint64_t> stale_on_disk_;  // namespace -> its new epoch
  bool sweep_records_ = false;
  bool watch_holds_ = false;
  bool write_removals_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace peercached
