#include "disk/reader.h"

#include <algorithm>

namespace peercached::disk {

Reader::Reader(Io& io, Health& health, std::function<void(const IndexEntry&)> damaged)
    : io_(io), health_(health), damaged_(std::move(damaged)) {
  while (io_.is_plain() && lanes_.size() < kUringThreads) {
    auto lane = make_uring_lane(kUringDepth);
    if (lane == nullptr) break;
    lanes_.push_back(std::move(lane));
  }
  uses_uring_ = !lanes_.empty();
  while (!uses_uring_ && lanes_.size() < kPlainThreads) lanes_.push_back(make_plain_lane(io_));
  for (const auto& lane : lanes_) threads_.emplace_back([this, &lane = *lane] { run(lane); });
}

Reader::~Reader() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Reader::read(std::shared_ptr<ReadBatch> batch, Deadline deadline, bool urgent) {
  if (batch->size() == 0) return;
  {
    std::lock_guard lock(mutex_);
    std::deque<Ticket>& queue = urgent ? urgent_ : background_;
    for (size_t i = 0; i < batch->size(); ++i) queue.emplace_back(batch, i);
    for (size_t i = 0; i < std::min(batch->size(), threads_.size()); ++i) wake_.notify_one();
  }
  batch->wait(deadline);
}

// Keeps as many reads in flight as the lane can have, and ends when none is and it should stop.
void Reader::run(ReadLane& lane) {
  std::vector<Slot> slots(lane.depth());
  std::vector<unsigned> idle;
  for (unsigned i = 0; i < slots.size(); ++i) {
    slots[i].bounce.reserve(kReadBytesMax);
    slots[i].clock = &health_.add_clock();
    idle.push_back(i);
  }
  std::vector<ReadLane::Done> done;
  for (;;) {
    while (!idle.empty()) {
      Slot& slot = slots[idle.back()];
      if (!next(slot.ticket, idle.size() == slots.size())) break;
      const ReadJob& job = slot.ticket.first->job(slot.ticket.second);
      slot.record.emplace(job.entry, job.segment->salt, job.read->dest);
      start(lane, slot, idle.back());
      idle.pop_back();
    }
    if (idle.size() == slots.size()) return;
    done.clear();
    lane.wait(done);
    for (const ReadLane::Done& one : done) {
      Slot& slot = slots[one.slot];
      slot.clock->since_ns.store(0, std::memory_order_relaxed);
      if (advance(slot, one.error)) {
        start(lane, slot, one.slot);
      } else {
        slot.ticket.first.reset();
        idle.push_back(one.slot);
      }
    }
  }
}

// False: nothing to do, and if it may wait, the thread should end.
bool Reader::next(Ticket& ticket, bool wait) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto work = [&] { return stopping_ || !urgent_.empty() || !background_.empty(); };
    if (wait) wake_.wait(lock, work);
    if (stopping_ || !work()) return false;
    std::deque<Ticket>& queue = urgent_.empty() ? background_ : urgent_;
    ticket = std::move(queue.front());
    queue.pop_front();
    if (!ticket.first->abandoned()) return true;
  }
}

void Reader::start(ReadLane& lane, Slot& slot, unsigned number) {
  const RecordRead::Range range = slot.record->next();
  counters_.disk_bytes += range.bytes;
  slot.clock->since_ns.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  const Segment& segment = *slot.ticket.first->job(slot.ticket.second).segment;
  lane.start(number, segment.file.fd(), slot.bounce.data(), range.bytes, range.offset);
}

// Takes what was read. True: the record goes on.
bool Reader::advance(Slot& slot, int error) {
  ReadBatch& batch = *slot.ticket.first;
  if (error != 0) {
    finish(slot, PageStatus::error);
    return false;
  }
  if (!batch.enter_copy()) return false;
  const bool right = slot.record->take(slot.bounce.data());
  batch.leave_copy();
  if (right && !slot.record->complete()) return true;
  finish(slot, right ? PageStatus::ok : PageStatus::absent);
  return false;
}

void Reader::finish(const Slot& slot, PageStatus status) {
  const IndexEntry& entry = slot.ticket.first->job(slot.ticket.second).entry;
  if (status == PageStatus::ok) {
    ++counters_.pages;
    counters_.payload_bytes += entry.length;
  } else {
    ++(status == PageStatus::error ? counters_.failed : counters_.corrupt);
    damaged_(entry);
  }
  slot.ticket.first->finish(slot.ticket.second, status);
}

}  // namespace peercached::disk
