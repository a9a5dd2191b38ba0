#include "disk/reader.h"

namespace peercached::disk {

Reader::Reader(Io& io, Health& health, std::function<void(const IndexEntry&)> damaged)
    : io_(io), health_(health), damaged_(std::move(damaged)) {
  for (unsigned i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
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
    for (size_t i = 0; i < std::min<size_t>(batch->size(), kThreads); ++i) wake_.notify_one();
  }
  batch->wait(deadline);
}

void Reader::run() {
  AlignedBuffer bounce(kReadBytesMax);
  IoClock& clock = health_.add_clock();
  for (Ticket ticket; next(ticket);) {
    read_one(*ticket.first, ticket.second, bounce, clock);
    ticket.first.reset();
  }
}

bool Reader::next(Ticket& ticket) {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !urgent_.empty() || !background_.empty(); });
    if (stopping_) return false;
    std::deque<Ticket>& queue = urgent_.empty() ? background_ : urgent_;
    ticket = std::move(queue.front());
    queue.pop_front();
    if (!ticket.first->abandoned()) return true;
  }
}

void Reader::read_one(ReadBatch& batch, size_t i, AlignedBuffer& bounce, IoClock& clock) {
  const ReadJob& job = batch.job(i);
  RecordRead record(job.entry, job.segment->salt, job.read->dest);
  while (!record.complete()) {
    const RecordRead::Range range = record.next();
    int error;
    {
      InIo in_io(clock);
      error = read_all(io_, job.segment->file.fd(), bounce.data(), range.bytes, range.offset);
    }
    counters_.disk_bytes += range.bytes;
    if (error != 0) return finish(batch, i, PageStatus::error);
    if (!batch.enter_copy()) return;
    const bool right = record.take(bounce.data());
    batch.leave_copy();
    if (!right) return finish(batch, i, PageStatus::absent);
  }
  finish(batch, i, PageStatus::ok);
}

void Reader::finish(ReadBatch& batch, size_t i, PageStatus status) {
  const IndexEntry& entry = batch.job(i).entry;
  if (status == PageStatus::ok) {
    ++counters_.pages;
    counters_.payload_bytes += entry.length;
  } else {
    ++(status == PageStatus::error ? counters_.failed : counters_.corrupt);
    damaged_(entry);
  }
  batch.finish(i, status);
}

}  // namespace peercached::disk
