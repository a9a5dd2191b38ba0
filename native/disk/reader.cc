#include "disk/reader.h"

#include <algorithm>

#include "common/thread_name.h"

namespace peercached::disk {

Reader::Reader(Io& io, Health& health, std::function<void(const IndexEntry&)> damaged)
    : io_(io), health_(health), damaged_(std::move(damaged)) {
  while (io_.is_plain() && lanes_.size() < kUringThreads) {
    auto lane = make_uring_lane(kUringDepth, kUringSlots);
    if (lane == nullptr) break;
    lanes_.push_back(std::move(lane));
  }
  uses_uring_ = !lanes_.empty();
  while (!uses_uring_ && lanes_.size() < kPlainThreads) lanes_.push_back(make_plain_lane(io_));
  for (const auto& lane : lanes_) threads_.emplace_back([this, &lane = *lane] { run(lane); });
}

Reader::~Reader() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

FileRange Reader::Run::blocks() const {
  const FileRange begin = blocks_of(job().entry);
  const FileRange end = blocks_of(batch->job(first + count - 1).entry);
  return {begin.offset, static_cast<size_t>(end.end() - begin.offset)};
}

size_t Reader::run_length(const ReadBatch& batch, size_t first) {
  const Segment* segment = batch.job(first).segment.get();
  const FileRange begin = blocks_of(batch.job(first).entry);
  FileRange last = begin;
  size_t count = 1;
  for (; first + count < batch.size(); ++count) {
    const ReadJob& job = batch.job(first + count);
    const FileRange blocks = blocks_of(job.entry);
    const bool behind = job.segment.get() == segment && blocks.offset >= last.offset &&
                        blocks.offset <= last.end() && blocks.end() >= last.end();
    if (!behind || blocks.end() - begin.offset > kRunBytesMax) break;
    last = blocks;
  }
  return count;
}

void Reader::read(std::shared_ptr<ReadBatch> batch, Deadline deadline, bool urgent) {
  if (batch->size() == 0) return;
  {
    MutexLock lock(mutex_);
    std::deque<Run>& queue = urgent ? urgent_ : background_;
    size_t runs = 0;
    for (size_t first = 0; first < batch->size(); ++runs) {
      const size_t count = run_length(*batch, first);
      queue.push_back({batch, first, count});
      first += count;
    }
    for (size_t i = 0; i < std::min(runs, threads_.size()); ++i) wake_.notify_one();
  }
  batch->wait(deadline);
}

// Keeps lane.depth() reads in flight, and returns when none is left and the reader is stopping.
// Processes completed reads while the next ones are in flight.
void Reader::run(ReadLane& lane) {
  name_thread("disk read");
  std::vector<Slot> slots(lane.slots());
  AlignedBuffer small(slots.size() * kSmallReadBytesMax);
  std::vector<unsigned> idle, again;
  for (unsigned i = 0; i < slots.size(); ++i) {
    slots[i].small = small.data() + i * kSmallReadBytesMax;
    slots[i].clock = &health_.add_clock();
    idle.push_back(i);
  }
  size_t in_flight = 0;
  std::vector<ReadLane::Done> done;
  for (;;) {
    for (; !again.empty(); again.pop_back(), ++in_flight)
      start(lane, slots[again.back()], again.back());
    for (; in_flight < lane.depth() && !idle.empty(); idle.pop_back(), ++in_flight) {
      Slot& slot = slots[idle.back()];
      if (!next(slot.run, idle.size() == slots.size())) break;
      slot.together = slot.run.count > 1;
      slot.record.emplace(slot.run.job().entry, slot.run.job().dest);
      start(lane, slot, idle.back());
    }
    if (idle.size() == slots.size()) return;
    if (done.empty()) {
      lane.wait(done);
      in_flight -= done.size();
      for (const ReadLane::Done& one : done)
        slots[one.slot].clock->since_ns.store(0, std::memory_order_relaxed);
      continue;
    }
    lane.submit();
    for (const ReadLane::Done& one : done) {
      Slot& slot = slots[one.slot];
      if (slot.together ? advance_all(slot, one.error) : advance(slot, one.error)) {
        again.push_back(one.slot);
      } else {
        slot.run.batch.reset();
        idle.push_back(one.slot);
      }
    }
    done.clear();
  }
}

// False: no work. If `wait` was set, the thread should end.
bool Reader::next(Run& run, bool wait) {
  MutexLock lock(mutex_);
  for (;;) {
    while (wait && !stopping_ && urgent_.empty() && background_.empty()) wake_.wait(mutex_);
    std::deque<Run>& queue = urgent_.empty() ? background_ : urgent_;
    if (stopping_ || queue.empty()) return false;
    run = std::move(queue.front());
    queue.pop_front();
    if (!run.batch->abandoned()) return true;
  }
}

void Reader::start(ReadLane& lane, Slot& slot, unsigned number) {
  const FileRange range = slot.together ? slot.run.blocks() : slot.record->next();
  counters_.disk_bytes += range.bytes;
  ++counters_.disk_reads;
  slot.clock->since_ns.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  slot.bounce = slot.small;
  if (range.bytes > kSmallReadBytesMax) {
    slot.large.reserve(kReadBytesMax);
    slot.bounce = slot.large.data();
  }
  lane.start(number, slot.run.job().segment->file.fd(), slot.bounce, range.bytes, range.offset);
}

// Processes the data of the run's first record. True: start another read in this slot.
bool Reader::advance(Slot& slot, int error) {
  bool right = error == 0;
  if (right && !take(slot, slot.bounce, right)) return false;
  if (right && !slot.record->complete()) return true;
  finish(slot.run, error != 0 ? PageStatus::error : right ? PageStatus::ok : PageStatus::absent);
  return next_record(slot);
}

// Processes a whole run. True: the read failed, so read each record on its own.
bool Reader::advance_all(Slot& slot, int error) {
  slot.together = false;
  if (error != 0) return true;
  const uint64_t begin = slot.run.blocks().offset;
  do {
    bool right = false;
    if (!take(slot, slot.bounce + (slot.record->next().offset - begin), right)) return false;
    finish(slot.run, right ? PageStatus::ok : PageStatus::absent);
  } while (next_record(slot));
  return false;
}

// False: the caller has left.
bool Reader::take(Slot& slot, const std::byte* blocks, bool& right) {
  if (!slot.run.batch->enter_copy()) return false;
  const uint64_t copied_before = slot.record->copied_bytes();
  right = slot.record->take(blocks);
  counters_.copied_bytes += slot.record->copied_bytes() - copied_before;
  slot.run.batch->leave_copy();
  return true;
}

// False: the run is complete.
bool Reader::next_record(Slot& slot) {
  ++slot.run.first;
  if (--slot.run.count == 0) return false;
  const ReadJob& job = slot.run.job();
  slot.record.emplace(job.entry, job.dest);
  return true;
}

void Reader::finish(const Run& run, PageStatus status) {
  const IndexEntry& entry = run.job().entry;
  if (status == PageStatus::ok) {
    ++counters_.pages;
    counters_.payload_bytes += entry.length;
  } else {
    ++(status == PageStatus::error ? counters_.failed : counters_.corrupt);
    damaged_(entry);
  }
  run.batch->finish(run.first, status);
}

}  // namespace peercached::disk
