#include "disk/health.h"

#include <algorithm>
#include <cerrno>

#include "common/error_text.h"

namespace peercached::disk {
namespace {

constexpr int kFailuresInARowMax = 3;

bool will_last(int error) {
  return error == ENOSPC || error == EDQUOT || error == EROFS || error == EFBIG ||
         error == EACCES || error == EPERM || error == ENOENT;
}

std::string remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "make room on that file system, or make disk_size smaller";
    case EROFS:
      return "mount it writable again";
    case EACCES:
    case EPERM:
      return "let the daemon's user write there";
    case EMFILE:
    case ENFILE:
      return "let the daemon have more open files (LimitNOFILE of its unit)";
    case EEXIST:
      return "something else has put a file there: look for a second daemon or a copied folder";
    case ENOENT:
      return "the directory is gone; put it back (is it mounted?), or restart the daemon";
    default:
      return "look into the kernel's log, and replace the disk if it is failing";
  }
}

}  // namespace

void Health::wrote() {
  MutexLock lock(mutex_);
  failures_in_a_row_ = 0;
  if (writable()) probe_ms_ = 0;
}

void Health::write_failed(const std::string& what, int error) {
  MutexLock lock(mutex_);
  write_errors_.fetch_add(1, std::memory_order_relaxed);
  if (++failures_in_a_row_ >= kFailuresInARowMax || will_last(error)) stop_writing(what, error);
}

void Health::cannot_make_room(const std::string& what, int error) {
  MutexLock lock(mutex_);
  write_errors_.fetch_add(1, std::memory_order_relaxed);
  stop_writing(what, error);
}

void Health::stop_writing(const std::string& what, int error) {
  probe_ms_ = probe_ms_ == 0 ? times_.probe_ms_min : std::min(probe_ms_ * 2, times_.probe_ms_max);
  next_probe_ = Clock::now() + std::chrono::milliseconds(probe_ms_);
  note_stopped(what + ": " + error_text(error) + "; " + remedy(error));
}

void Health::lost_directory(const std::string& what) {
  MutexLock lock(mutex_);
  next_probe_ = Clock::now() + std::chrono::milliseconds(times_.probe_ms_min);
  note_stopped(what);
}

void Health::note_stopped(const std::string& why) {
  why_ = why_stopped_ = why;
  if (writable_.exchange(false, std::memory_order_acq_rel)) ++stops_;
}

void Health::recovered() {
  MutexLock lock(mutex_);
  failures_in_a_row_ = 0;
  why_.clear();
  writable_.store(true, std::memory_order_release);
}

TimePoint Health::next_probe() const {
  MutexLock lock(mutex_);
  return next_probe_;
}

bool Health::stalled() const { return oldest_io_ms() > times_.stall_ms; }

DiskState Health::state() const {
  if (stalled()) return DiskState::stalled;
  return writable() ? DiskState::on : DiskState::read_only;
}

std::string Health::why() const {
  const int64_t waiting_ms = oldest_io_ms();
  if (waiting_ms > times_.stall_ms) {
    return "a request has waited for " + std::to_string(waiting_ms / 1000) + " s";
  }
  MutexLock lock(mutex_);
  return why_;
}

uint64_t Health::stops() const {
  MutexLock lock(mutex_);
  return stops_;
}

std::string Health::why_stopped() const {
  MutexLock lock(mutex_);
  return why_stopped_;
}

IoClock& Health::add_clock() {
  MutexLock lock(mutex_);
  return *clocks_.emplace_back(std::make_unique<IoClock>());
}

int64_t Health::oldest_io_ms() const {
  int64_t oldest_ns = 0;
  {
    MutexLock lock(mutex_);
    for (const auto& clock : clocks_) {
      const int64_t since_ns = clock->since_ns.load(std::memory_order_relaxed);
      if (since_ns != 0 && (oldest_ns == 0 || since_ns < oldest_ns)) oldest_ns = since_ns;
    }
  }
  if (oldest_ns == 0) return 0;
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch() -
                                                               Clock::duration(oldest_ns))
      .count();
}

}  // namespace peercached::disk
