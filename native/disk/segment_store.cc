#include "disk/segment_store.h"

#include <algorithm>

#include "disk/faulty_io.h"
#include "disk/folder.h"
#include "disk/leaving.h"
#include "disk/maintenance.h"
#include "disk/reader.h"
#include "disk/recovery.h"
#include "disk/write_behind.h"

namespace peercached {
namespace disk {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kSegmentBytesMin = 64 << 10;
constexpr int64_t kCloseMs = 2000;

uint64_t segment_bytes_of(const DiskConfig& config) {
  uint64_t bytes = config.segment_bytes;
  if (bytes == 0) {
    bytes = std::clamp(config.size_bytes / 64, 16 * kMiB, 256 * kMiB);
    bytes = std::max(bytes, config.size_bytes / 1024);  // at most 1024 open files
    bytes = std::min(bytes, config.size_bytes / 8);
  }
  bytes = block_floor(bytes);
  if (config.size_bytes < kDiskBytesMin || bytes < kSegmentBytesMin ||
      config.size_bytes < 4 * bytes) {
    throw DiskError("disk_size of " + std::to_string(config.size_bytes) +
                    " bytes is too small: it must be at least " + std::to_string(kDiskBytesMin) +
                    ", and have room for 4 segments of " + std::to_string(bytes));
  }
  return bytes;
}

// nullptr: without faults.
std::unique_ptr<Io> faulty(Io& io, const std::string& plan) {
  try {
    const DiskFaults faults = parse_disk_faults(plan);
    return faults.any() ? make_faulty_io(io, faults) : nullptr;
  } catch (const std::invalid_argument& error) {
    throw DiskError(error.what());
  }
}

class SegmentStore final : public DiskTier {
 public:
  SegmentStore(const DiskConfig& config, DiskEvicted on_evicted, Io& plain_io, HealthTimes times)
      : faulty_io_(faulty(plain_io, config.faults)),
        io_(faulty_io_ ? *faulty_io_ : plain_io),
        size_bytes_(config.size_bytes),
        segment_bytes_(segment_bytes_of(config)),
        on_evicted_(std::move(on_evicted)),
        folder_(open_folder(io_, config.path, config.identity)),
        why_empty_(judge(config)),
        index_(namespaces_),
        recovered_(recover(io_, folder_, config.identity, config.sync != SyncPolicy::never,
                           segments_, index_, namespaces_, config.is_void)),
        health_(times),
        log_config_{folder_.inside, config.size_bytes, segment_bytes_, config.sync,
                    config.identity},
        log_(io_, log_config_, segments_, index_, health_, recovered_.next_number,
             [this] { maintenance_.wake(); }),
        maintenance_(
            io_, log_config_, config.carry, folder_, log_, segments_, index_, health_, on_evicted_,
            [this](const Digest& digest, uint64_t sequence, uint32_t segment) {
              lose(digest, sequence, segment);
            },
            [this] { write_behind_.writable_again(); }),
        write_behind_(log_, index_, namespaces_, health_, config, segment_bytes_,
                      recovered_.last_sequence),
        leaving_(log_, segments_, index_, carry_bytes_max(log_config_, config.carry)),
        reader_(io_, health_, [this](const IndexEntry& entry) {
          lose(entry.digest, entry.sequence, entry.segment);
        }) {
    maintenance_.start();
  }

  ~SegmentStore() override {
    write_behind_.drain(Deadline::after_ms(kCloseMs));
    maintenance_.stop();
    log_.stop();
    write_behind_.join();
    log_.close(health_.add_clock());
  }

  PutOutcome put(const DiskPage& page, const std::byte* payload,
                 std::function<void(bool)> done) override {
    return write_behind_.put(page, payload, std::move(done));
  }

  std::optional<DiskPage> find(const Digest& digest) const override {
    const auto found = index_.find(digest);
    if (!found || !found->entry.on_disk()) return std::nullopt;
    return found->page;
  }

  void read(std::span<DiskRead> batch, Deadline deadline, bool urgent, bool touches) override {
    const bool stalled = health_.stalled();
    std::vector<ReadJob> jobs;
    jobs.reserve(batch.size());
    for (DiskRead& one : batch) {
      one.status = PageStatus::absent;
      const auto found = index_.find(one.digest);
      if (!found || !found->entry.on_disk() || found->entry.length != one.length) continue;
      auto segment = segments_.get(found->entry.segment);
      if (segment == nullptr) continue;  // evicted just now
      one.status = stalled ? PageStatus::error : PageStatus::pending;
      if (!stalled) jobs.push_back({found->entry, std::move(segment), &one, one.dest});
    }
    reader_.read(std::make_shared<ReadBatch>(std::move(jobs)), deadline, urgent);
    std::vector<Digest> used;
    used.reserve(batch.size());
    for (const DiskRead& one : batch) {
      reads_absent_ += one.status == PageStatus::absent;
      reads_late_ += one.status == PageStatus::deadline;
      if (one.status == PageStatus::ok) used.push_back(one.digest);
    }
    if (touches) touch(used);
  }

  void touch(std::span<const Digest> digests) override {
    const uint32_t head = log_.head();
    for (const Digest& digest : digests) {
      index_.change(digest, [&](IndexEntry& entry) {
        entry.touched = head;
        return Index::Verdict::keep;
      });
    }
  }

  void set_uses(const Digest& digest, uint8_t uses) override {
    index_.change(digest, [&](IndexEntry& entry) {
      entry.uses = std::max<uint32_t>(entry.uses, uses);
      return Index::Verdict::keep;
    });
  }

  std::vector<DiskPage> leaving(uint8_t uses_min) override { return leaving_.pages(uses_min); }
  std::vector<DiskPage> used(uint8_t uses_min) override { return leaving_.all(uses_min); }

  void remove(std::span<const Digest> digests) override {
    for (const Digest& digest : digests) write_behind_.remove(digest);
  }

  void drop_namespace(const Digest& namespace_id, uint64_t below_epoch) override {
    write_behind_.clear(namespace_id, below_epoch);
    maintenance_.sweep_dropped();
  }

  void note_removals(const TierNote& note) override { maintenance_.note_removals(note); }

  std::map<Digest, uint64_t> floors() const override { return namespaces_.floors(); }
  void set_quota(const Digest& namespace_id, uint64_t room_bytes) override {
    namespaces_.set_quota(namespace_id, room_bytes);
  }
  DiskNamespaceUse use_of(const Digest& namespace_id) const override {
    return namespaces_.use_of(namespace_id);
  }

  bool scan(uint64_t& at, std::vector<DiskPage>& pages) const override {
    return index_.next_pages(at, pages);
  }

  bool flush(Deadline deadline) override { return write_behind_.flush(deadline); }

  DiskStats stats() const override;

 private:
  // Why the directory was emptied; "" if it was not.
  std::string judge(const DiskConfig& config) {
    std::string why = config.why_not ? config.why_not(folder_.removals) : "";
    if (!why.empty()) empty(io_, folder_);
    return why.empty() ? folder_.emptied : why;
  }

  // For a page that is damaged or unreadable, or could not be carried forward.
  void lose(const Digest& digest, uint64_t sequence, uint32_t segment) {
    const auto found = index_.find(digest);
    write_behind_.give_up(digest, sequence, segment);
    if (found && found->entry.sequence == sequence) on_evicted_({&found->page, 1});
  }

  const std::unique_ptr<Io> faulty_io_;
  Io& io_;
  const uint64_t size_bytes_;
  const uint64_t segment_bytes_;
  const DiskEvicted on_evicted_;
  Folder folder_;
  const std::string why_empty_;
  NamespaceNumbers namespaces_;
  SegmentSet segments_;
  Index index_;
  const Recovered recovered_;
  Health health_;
  const LogConfig log_config_;
  Log log_;
  std::atomic<uint64_t> reads_absent_{0}, reads_late_{0};
  // Declaration order matters: their threads end in the reverse order. A read that fails late tells
  // the write-behind.
  Maintenance maintenance_;
  WriteBehind write_behind_;
  Leaving leaving_;
  Reader reader_;
};

DiskStats SegmentStore::stats() const {
  DiskStats stats;
  stats.state = health_.state();
  stats.why = health_.why();
  const auto oldest = segments_.oldest();
  stats.io = oldest == nullptr || oldest->direct ? "direct" : "buffered";
  stats.io += reader_.uses_uring() ? ", io_uring" : ", threads";
  stats.size_bytes = size_bytes_;
  stats.used_bytes = segments_.bytes();
  stats.segments = segments_.count();
  const Index::Totals totals = index_.totals();
  write_behind_.add_to(stats);
  maintenance_.add_to(stats);
  stats.pages = totals.pages - std::min(totals.pages, stats.queued_pages);
  stats.payload_bytes = totals.payload_bytes - std::min(totals.payload_bytes, stats.queued_bytes);
  stats.index_bytes = totals.bytes;
  const LogCounters& log = log_.counters();
  stats.pages_written = log.pages_written;
  stats.payload_bytes_written = log.payload_bytes_written;
  stats.disk_bytes_written = log.disk_bytes_written;
  stats.pages_carried = log.pages_carried;
  stats.write_errors = health_.write_errors();
  stats.write_stops = health_.stops();
  stats.why_stopped = health_.why_stopped();
  const Reader::Counters& reads = reader_.counters();
  stats.pages_read = reads.pages;
  stats.payload_bytes_read = reads.payload_bytes;
  stats.disk_bytes_read = reads.disk_bytes;
  stats.disk_reads = reads.disk_reads;
  stats.copied_bytes_read = reads.copied_bytes;
  stats.reads_absent = reads_absent_;
  stats.reads_late = reads_late_;
  stats.reads_corrupt = reads.corrupt;
  stats.reads_failed = reads.failed;
  stats.recovery = recovered_.report;
  stats.recovery.emptied = why_empty_;
  return stats;
}

}  // namespace

std::unique_ptr<DiskTier> open_segment_store(const DiskConfig& config, DiskEvicted on_evicted,
                                             Io& io, HealthTimes times) {
  return std::make_unique<SegmentStore>(config, std::move(on_evicted), io, times);
}

}  // namespace disk

std::unique_ptr<DiskTier> open_disk_tier(const DiskConfig& config, DiskEvicted on_evicted) {
  return disk::open_segment_store(config, std::move(on_evicted), disk::posix_io());
}

}  // namespace peercached
