#include "disk/faulty_io.h"

#include <cerrno>
#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "common/fault_text.h"
#include "common/mutex.h"
#include "disk/forwarding_io.h"

namespace peercached::disk {
namespace {

class FaultyIo final : public ForwardingIo {
 public:
  FaultyIo(Io& inner, const DiskFaults& faults)
      : ForwardingIo(inner), faults_(faults), random_(faults.seed) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    const int fd = ForwardingIo::open(path, flags, mode);
    MutexLock lock(mutex_);
    if (fd >= 0 && path.find("/segment-") != std::string::npos) segments_.insert(fd);
    return fd;
  }
  void close(int fd) override {
    {
      MutexLock lock(mutex_);
      segments_.erase(fd);
    }
    ForwardingIo::close(fd);
  }
  ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    stall(fd, faults_.stall + faults_.read_stall);
    if (happens(fd, faults_.read_eio)) return -EIO;
    const ssize_t read = ForwardingIo::pread(fd, to, bytes, offset);
    if (read > 0 && happens(fd, faults_.read_corrupt)) {
      MutexLock lock(mutex_);
      to[random_() % static_cast<size_t>(read)] ^= std::byte{1} << random_() % 8;
    }
    return read;
  }
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    stall(fd, faults_.stall + faults_.write_stall);
    if (happens(fd, faults_.write_eio)) return -EIO;
    if (happens(fd, faults_.no_space)) return -ENOSPC;
    if (bytes > kBlock && happens(fd, faults_.write_short)) bytes = bytes / 2 / kBlock * kBlock;
    return ForwardingIo::pwrite(fd, from, bytes, offset);
  }
  int fdatasync(int fd) override {
    stall(fd, faults_.stall + faults_.write_stall);
    return happens(fd, faults_.sync_eio) ? -EIO : ForwardingIo::fdatasync(fd);
  }
  int allocate(int fd, uint64_t bytes) override {
    return happens(fd, faults_.no_space) ? -ENOSPC : ForwardingIo::allocate(fd, bytes);
  }

 private:
  static constexpr size_t kBlock = 4096;  // direct I/O needs whole blocks

  bool happens(int fd, double probability) {
    if (probability == 0) return false;
    MutexLock lock(mutex_);
    return segments_.contains(fd) && std::uniform_real_distribution<>()(random_) < probability;
  }
  void stall(int fd, double probability) {
    if (happens(fd, probability))
      std::this_thread::sleep_for(std::chrono::milliseconds(faults_.stall_ms));
  }

  const DiskFaults faults_;
  Mutex mutex_;
  std::mt19937_64 random_ GUARDED_BY(mutex_);
  std::set<int> segments_ GUARDED_BY(mutex_);
};

}  // namespace

DiskFaults parse_disk_faults(const std::string& text) {
  DiskFaults faults;
  const FaultFields fields = {{{"disk_write_eio", &faults.write_eio},
                               {"disk_write_short", &faults.write_short},
                               {"disk_no_space", &faults.no_space},
                               {"disk_sync_eio", &faults.sync_eio},
                               {"disk_read_eio", &faults.read_eio},
                               {"disk_read_corrupt", &faults.read_corrupt},
                               {"disk_stall", &faults.stall},
                               {"disk_read_stall", &faults.read_stall},
                               {"disk_write_stall", &faults.write_stall}},
                              {{"seed", &faults.seed}, {"disk_stall_ms", &faults.stall_ms}}};
  parse_faults(text, fields, [](std::string_view name) { return !is_disk_fault(name); });
  return faults;
}

std::unique_ptr<Io> make_faulty_io(Io& inner, const DiskFaults& faults) {
  return std::make_unique<FaultyIo>(inner, faults);
}

}  // namespace peercached::disk
