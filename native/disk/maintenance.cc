#include "disk/maintenance.h"

#include <algorithm>
#include <cerrno>

#include "common/thread_name.h"
#include "disk/folder_watch.h"
#include "disk/leaving.h"

namespace peercached::disk {
namespace {

constexpr auto kLookApart = std::chrono::seconds(1);

}  // namespace

Maintenance::Maintenance(Io& io, const LogConfig& config, double carry, const Folder& folder,
                         Log& log, SegmentSet& segments, Index& index, Health& health,
                         DiskEvicted on_evicted, GiveUp give_up,
                         std::function<void()> writable_again)
    : io_(io),
      config_(config),
      carry_bytes_max_(carry_bytes_max(config, carry)),
      folder_(folder),
      log_(log),
      segments_(segments),
      index_(index),
      health_(health),
      on_evicted_(std::move(on_evicted)),
      give_up_(std::move(give_up)),
      writable_again_(std::move(writable_again)),
      clock_(health.add_clock()) {}

void Maintenance::start() {
  thread_ = std::thread([this] {
    name_thread("disk upkeep");
    run();
  });
}

void Maintenance::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
  MutexLock lock(mutex_);
  write_note(note_);
}

void Maintenance::wake() {
  MutexLock lock(mutex_);
  woken_ = true;
  wake_.notify_one();
}

void Maintenance::sweep_dropped() {
  MutexLock lock(mutex_);
  sweep_ = woken_ = true;
  wake_.notify_one();
}

void Maintenance::note_removals(const TierNote& note) {
  MutexLock lock(mutex_);
  note_ = note;
  woken_ = true;
  wake_.notify_one();
}

void Maintenance::add_to(DiskStats& stats) const {
  stats.pages_evicted = pages_evicted_;
  stats.segments_evicted = segments_evicted_;
}

void Maintenance::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const bool sweep = std::exchange(sweep_, false);
    const TierNote note = note_;
    woken_ = false;
    {
      MutexUnlock unlocked(mutex_);
      work(note, sweep);
    }
    // Also wakes without a call, to notice when the disk becomes unwritable.
    const TimePoint until =
        health_.writable() ? Clock::now() + std::chrono::seconds(1) : health_.next_probe();
    while (!woken_ && !stopping_ && wake_.wait_until(mutex_, until)) {
    }
  }
}

void Maintenance::work(const TierNote& note, bool sweep) {
  write_note(note);
  if (sweep) erase_dropped();
  const bool there = directory_is_there();
  const bool probe = there && !health_.writable() && Clock::now() >= health_.next_probe();
  if (probe || health_.writable()) {
    while (!stopping() && log_.needs_room() && evict_oldest()) {
    }
  }
  if (probe) {
    log_.probe(clock_);
    if (health_.writable()) writable_again_();
  }
}

bool Maintenance::directory_is_there() {
  if (is_there_ && Clock::now() < look_at_) return true;
  std::string trouble;
  {
    InIo in_io(clock_);
    trouble = folder_trouble(io_, folder_, segments_);
  }
  look_at_ = Clock::now() + kLookApart;
  is_there_ = trouble.empty();
  if (!is_there_) health_.lost_directory(trouble);
  return is_there_;
}

// A failed write is retried a second later. Until then a restart cannot detect a state_dir that is
// older than the directory.
void Maintenance::write_note(const TierNote& note) {
  if (note.journal == written_note_.journal && note.position == written_note_.position) return;
  InIo in_io(clock_);
  if (disk::write_note(io_, config_.folder, note) == 0) written_note_ = note;
}

bool Maintenance::stopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

// Leaves queued pages to the writers: these will not write them.
void Maintenance::erase_dropped() {
  index_.scan([&](const IndexEntry& entry) {
    return entry.on_disk() && !index_.live(entry) ? Index::Verdict::erase : Index::Verdict::keep;
  });
}

// False: it cannot be evicted now. Younger segments must not go first, because a removal must
// outlive the copies that it removes. A power cut may undo a deletion, so sync the directory before
// the next.
//
// The index keeps the segment's pages until it is deleted for good. A remove() meanwhile must still
// write a removal, or a crash would bring the page back.
bool Maintenance::evict_oldest() {
  const std::shared_ptr<Segment> segment = segments_.oldest();
  if (segment == nullptr || !segment->sealed.load(std::memory_order_acquire)) return false;
  carry(*segment, worth_carrying(*segment));
  int error;
  {
    InIo in_io(clock_);
    error = io_.unlink(segment_path(config_.folder, segment->number));
    if (error == -ENOENT) error = 0;
    segment->unlinked = segment->unlinked || error == 0;
    if (error == 0 && config_.sync != SyncPolicy::never) error = io_.sync_directory(config_.folder);
  }
  if (error != 0) {
    health_.cannot_make_room("deleting segment " + std::to_string(segment->number), -error);
    return false;
  }
  const std::vector<DiskPage> lost = forget(*segment);
  segments_.remove(segment->number);
  ++segments_evicted_;
  log_.room_made();
  pages_evicted_ += lost.size();
  if (!lost.empty()) on_evicted_(lost);
  return true;
}

// Ordered by their place in the segment.
std::vector<IndexedPage> Maintenance::worth_carrying(const Segment& segment) {
  std::vector<IndexedPage> used;
  index_.scan([&](const IndexEntry& entry) {
    if (entry.segment == segment.number && entry.touched != 0 && index_.live(entry))
      used.push_back({entry, index_.page_of(entry)});
    return Index::Verdict::keep;
  });
  used.resize(carried_first(used, carry_bytes_max_));
  std::ranges::sort(used, std::less(), [](const auto& one) { return one.entry.unit; });
  return used;
}

// Erases the segment's entries from the index; returns the pages that were still readable.
std::vector<DiskPage> Maintenance::forget(const Segment& segment) {
  std::vector<DiskPage> lost;
  index_.scan([&](const IndexEntry& entry) {
    if (entry.segment != segment.number) return Index::Verdict::keep;
    if (index_.live(entry)) lost.push_back(index_.page_of(entry));
    return Index::Verdict::erase;
  });
  return lost;
}

// Copies pages into the open segment or the one reserved for them. Leaves them behind if there is
// no room, as after a start with a smaller size. The index names the new segment for a copied page.
void Maintenance::carry(const Segment& segment, std::span<const IndexedPage> pages) {
  AlignedBuffer payloads, buffer;
  for (bool room = true; !pages.empty();) {
    std::vector<LogItem> items;
    const size_t loaded = load(segment, pages, payloads, items);
    for (std::span<LogItem> left = items; room && !left.empty();) {
      const size_t settled = log_.append(left, Log::Kind::carried, buffer, clock_);
      room = settled > 0;
      left = left.subspan(settled);
    }
    for (const LogItem& item : items) {
      // The copy may be on disk all the same, in a segment that outlives this one.
      if (item.outcome == LogItem::Outcome::failed)
        give_up_(item.entry.digest, item.entry.sequence, segment.number);
    }
    pages = pages.subspan(loaded);
  }
}

// Reads about one batch of records into `payloads`; the new items point there. Returns how many
// pages it processed.
size_t Maintenance::load(const Segment& segment, std::span<const IndexedPage> pages,
                         AlignedBuffer& payloads, std::vector<LogItem>& items) {
  uint64_t bytes = 0;
  size_t count = 0;
  do {
    bytes += record_bytes(pages[count++].entry.length);
  } while (count < pages.size() && bytes + record_bytes(pages[count].entry.length) <= kBatchBytes);
  payloads.reserve(bytes);
  AlignedBuffer bounce(kReadBytesMax);
  std::byte* to = payloads.data();
  for (const auto& [entry, page] : pages.first(count)) {
    RecordRead record(entry, to);
    bool right = true;
    while (right && !record.complete()) {
      const FileRange range = record.next();
      InIo in_io(clock_);
      right = read_all(io_, segment.file.fd(), bounce.data(), range.bytes, range.offset) == 0 &&
              record.take(bounce.data());
    }
    if (!right) continue;
    LogItem& item = items.emplace_back();
    item.entry = page_entry(page, entry.sequence);
    item.payload = to;
    item.carried_from = segment.number;
    to += record_bytes(entry.length);
  }
  return count;
}

}  // namespace peercached::disk
