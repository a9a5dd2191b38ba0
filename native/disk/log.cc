#include "disk/log.h"

#include <algorithm>
#include <cstring>

namespace peercached::disk {

FooterEntry page_entry(const DiskPage& page, uint64_t sequence) {
  return {page.digest, page.namespace_id, page.epoch,       page.checksum, sequence, page.set_at,
          0,           page.length,       RecordKind::page, page.born};
}

Log::Log(Io& io, const LogConfig& config, SegmentSet& segments, Index& index, Health& health,
         uint32_t next_number, std::function<void()> need_room)
    : io_(io),
      config_(config),
      segments_(segments),
      index_(index),
      health_(health),
      need_room_(std::move(need_room)),
      next_number_(next_number) {}

size_t Log::append(std::span<LogItem> items, Kind kind, AlignedBuffer& buffer, IoClock& clock) {
  std::shared_ptr<Open> open;
  Batch batch;
  {
    MutexLock lock(mutex_);
    open = open_with_room(items.front().entry.length, kind, clock);
    if (open == nullptr) return 0;
    batch = place(*open, items);
    if (batch.bytes == 0) return batch.items;
    ++open->in_flight;
  }

  items = items.first(batch.items);
  // A carried page counts as written only when its copy is synced: its original was on the medium,
  // and is deleted next.
  const bool sync =
      kind == Kind::carried ? config_.sync != SyncPolicy::never : config_.sync == SyncPolicy::batch;
  const int error = write(*open, batch, items, sync, buffer, clock);
  settle(items, error);

  bool last = false;
  {
    MutexLock lock(mutex_);
    for (const LogItem& item : items) {
      if (item.outcome == LogItem::Outcome::written) open->entries.push_back(item.entry);
    }
    if (error != 0) {  // do not write more behind a failed write
      open->closing = true;
      if (open_ == open) open_ = nullptr;
    }
    last = --open->in_flight == 0 && open->closing;
  }
  if (error == 0) {
    health_.wrote();
  } else {
    health_.write_failed("writing to segment " + std::to_string(open->segment->number), -error);
  }
  if (last) seal_segment(*open, clock);
  return batch.items;
}

bool Log::has_room(uint64_t segments) const {
  return segments_.bytes() + segments * config_.segment_bytes <= config_.size_bytes &&
         segments_.count() + segments <= kSegmentsMax;
}

void Log::room_made() {
  MutexLock lock(mutex_);
  changed_.notify_all();
}

void Log::probe(IoClock& clock) {
  MutexLock lock(mutex_);
  if (stopping_ || opening_ || needs_room()) return;
  if (open_ != nullptr || open_segment(clock)) health_.recovered();
}

uint32_t Log::head() const {
  MutexLock lock(mutex_);
  return next_number_ - 1;
}

void Log::stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void Log::close(IoClock& clock) {
  std::shared_ptr<Open> open;
  {
    MutexLock lock(mutex_);
    open.swap(open_);
  }
  if (open != nullptr) seal_segment(*open, clock);
}

// The open segment, with room for a record of this length; nullptr if there is none.
std::shared_ptr<Log::Open> Log::open_with_room(uint32_t length, Kind kind, IoClock& clock) {
  for (;;) {
    if (stopping_ || !health_.writable()) return nullptr;
    if (open_ != nullptr && fits(*open_, open_->end + lone_record_bytes(length))) return open_;
    const bool room = kind == Kind::carried ? has_room(1) : !needs_room();
    if (kind == Kind::carried && !room && !opening_) return nullptr;
    if (opening_ || !room) {
      // With a timeout, because the disk may become unwritable meanwhile.
      changed_.wait_until(mutex_, Clock::now() + std::chrono::milliseconds(100));
    } else if (!open_segment(clock)) {
      return nullptr;
    }
  }
}

// Replaces the open segment by a new one. Releases the mutex meanwhile.
bool Log::open_segment(IoClock& clock) {
  opening_ = true;
  const std::shared_ptr<Open> full = std::exchange(open_, nullptr);
  const uint32_t number = next_number_++;
  bool seal_now = false;
  if (full != nullptr) {
    full->closing = true;
    seal_now = full->in_flight == 0;
  }
  std::shared_ptr<Open> opened;
  {
    MutexUnlock unlocked(mutex_);
    if (seal_now) seal_segment(*full, clock);
    opened = make_segment(number, clock);
    if (needs_room()) need_room_();
  }
  opening_ = false;
  open_ = std::move(opened);
  changed_.notify_all();
  return open_ != nullptr;
}

// nullptr: it failed, and `health` knows.
std::shared_ptr<Log::Open> Log::make_segment(uint32_t number, IoClock& clock) {
  auto open = std::make_shared<Open>();
  int error;
  {
    InIo in_io(clock);
    error = create_segment(io_, config_.folder, number, config_.segment_bytes, config_.identity,
                           config_.sync != SyncPolicy::never, open->segment);
  }
  if (error != 0) {
    health_.cannot_make_room("making segment " + std::to_string(number), -error);
    return nullptr;
  }
  segments_.add(open->segment);
  counters_.disk_bytes_written += kBlockBytes;
  return open;
}

// Whether records up to `end` and a footer with one more entry fit into the segment.
bool Log::fits(const Open& open, uint64_t end) const {
  return block_ceil(end) + footer_bytes(open.placed + 1) <= config_.segment_bytes;
}

bool Log::wanted(const LogItem& item) {
  if (item.entry.kind != RecordKind::page) return true;
  bool wanted = false;
  index_.change(item.entry.digest, [&](IndexEntry& entry) {
    wanted = entry.sequence == item.entry.sequence && entry.segment == item.carried_from &&
             index_.live(entry);
    return Index::Verdict::keep;
  });
  return wanted;
}

Log::Batch Log::place(Open& open, std::span<LogItem> items) {
  Batch batch{open.end, 0, 0, 0};
  uint64_t payloads_end = 0;  // relative to the end of the headers, which is not known yet
  for (LogItem& item : items) {
    const uint64_t begin = payload_begin(payloads_end, item.entry.length);
    const uint64_t end = begin + item.entry.length;
    const uint64_t bytes = headers_bytes(batch.records + 1) + block_ceil(end);
    if (batch.records > 0 && bytes > kBatchBytes) break;
    if (!fits(open, batch.offset + bytes)) break;
    ++batch.items;
    if (!wanted(item)) {
      item.outcome = LogItem::Outcome::unwanted;
      continue;
    }
    item.entry.unit = static_cast<uint32_t>(begin / kUnitBytes);
    item.segment = open.segment;
    payloads_end = end;
    batch.bytes = bytes;
    ++batch.records;
    ++open.placed;
  }
  const uint64_t payloads = batch.offset + headers_bytes(batch.records);
  for (LogItem& item : items.first(batch.items)) {
    if (item.segment != nullptr) item.entry.unit += static_cast<uint32_t>(payloads / kUnitBytes);
  }
  open.end += batch.bytes;
  return batch;
}

int Log::write(const Open& open, const Batch& batch, std::span<const LogItem> items, bool sync,
               AlignedBuffer& buffer, IoClock& clock) {
  buffer.reserve(batch.bytes);
  std::byte* header_to = buffer.data();
  std::byte* filled = header_to + batch.records * sizeof(RecordHeader);
  const auto fill_until = [&](std::byte* end) {
    std::memset(filled, 0, static_cast<size_t>(end - filled));
    filled = end;
  };
  for (const LogItem& item : items) {
    if (item.segment == nullptr) continue;
    RecordHeader header = header_of(item.entry);
    seal(header, open.segment->salt);
    std::memcpy(header_to, &header, sizeof header);
    header_to += sizeof header;
    if (item.entry.length == 0) continue;
    fill_until(buffer.data() + (uint64_t{item.entry.unit} * kUnitBytes - batch.offset));
    std::memcpy(filled, item.payload, item.entry.length);
    filled += item.entry.length;
  }
  fill_until(buffer.data() + batch.bytes);

  InIo in_io(clock);
  const int fd = open.segment->file.fd();
  int error = write_all(io_, fd, buffer.data(), batch.bytes, batch.offset);
  if (error == 0 && sync) error = io_.fdatasync(fd);
  if (error == 0) counters_.disk_bytes_written += batch.bytes;
  return error;
}

void Log::settle(std::span<LogItem> items, int error) {
  for (LogItem& item : items) {
    if (item.segment == nullptr) continue;
    if (error != 0) {
      item.outcome = LogItem::Outcome::failed;
      continue;
    }
    item.outcome = LogItem::Outcome::written;
    if (item.entry.kind != RecordKind::page) continue;
    index_.change(item.entry.digest, [&](IndexEntry& entry) {
      if (entry.sequence == item.entry.sequence && entry.segment == item.carried_from) {
        entry.segment = item.segment->number;
        entry.unit = item.entry.unit;
        if (item.carried_from != 0) entry.touched = 0;
      }
      return Index::Verdict::keep;
    });
    if (item.carried_from != 0) {
      ++counters_.pages_carried;
    } else {
      ++counters_.pages_written;
      counters_.payload_bytes_written += item.entry.length;
    }
  }
}

void Log::seal_segment(Open& open, IoClock& clock) {
  Segment& segment = *open.segment;
  uint64_t file_bytes = 0;
  int error;
  {
    InIo in_io(clock);
    error = write_footer(io_, segment, open.entries, open.end, config_.sync != SyncPolicy::never,
                         file_bytes);
  }
  if (error == 0) {
    counters_.disk_bytes_written += file_bytes - open.end;
    segments_.resize(segment.number, file_bytes);
  } else {  // the next start reads it in full
    health_.write_failed("sealing segment " + std::to_string(segment.number), -error);
  }
  segment.sealed.store(true, std::memory_order_release);
  if (needs_room()) need_room_();
}

}  // namespace peercached::disk
