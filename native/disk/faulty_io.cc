#include "disk/faulty_io.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "disk/forwarding_io.h"

namespace peercached::disk {
namespace {

[[noreturn]] void refuse(std::string_view part, std::string_view why) {
  throw std::invalid_argument(
      "fault plan: '" + std::string(part) + "' " + std::string(why) +
      "; faults of the disk look like disk_write_eio=0.01 with any of disk_write_eio, "
      "disk_write_short, disk_no_space, disk_sync_eio, disk_read_eio, disk_read_corrupt, "
      "disk_stall, disk_write_stall (0 to 1) and disk_stall_ms");
}

template <typename Number>
Number number(std::string_view part, std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(part, "is not a number");
  return value;
}

void apply(DiskFaults& faults, std::string_view part) {
  const std::map<std::string_view, double*> probabilities = {
      {"disk_write_eio", &faults.write_eio}, {"disk_write_short", &faults.write_short},
      {"disk_no_space", &faults.no_space},   {"disk_sync_eio", &faults.sync_eio},
      {"disk_read_eio", &faults.read_eio},   {"disk_read_corrupt", &faults.read_corrupt},
      {"disk_stall", &faults.stall},         {"disk_write_stall", &faults.write_stall}};
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  if (name != "seed" && !name.starts_with("disk_")) return;
  if (equals == std::string_view::npos) refuse(part, "has no '='");
  const std::string_view value = part.substr(equals + 1);
  if (name == "seed") {
    faults.seed = number<uint64_t>(part, value);
  } else if (name == "disk_stall_ms") {
    faults.stall_ms = number<uint32_t>(part, value);
  } else {
    const auto found = probabilities.find(name);
    if (found == probabilities.end()) refuse(part, "names no fault");
    *found->second = number<double>(part, value);
    if (!(*found->second >= 0 && *found->second <= 1)) refuse(part, "is not between 0 and 1");
  }
}

class FaultyIo final : public ForwardingIo {
 public:
  FaultyIo(Io& inner, const DiskFaults& faults)
      : ForwardingIo(inner), faults_(faults), random_(faults.seed) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    const int fd = ForwardingIo::open(path, flags, mode);
    std::lock_guard lock(mutex_);
    if (fd >= 0 && path.find("/segment-") != std::string::npos) segments_.insert(fd);
    return fd;
  }
  void close(int fd) override {
    {
      std::lock_guard lock(mutex_);
      segments_.erase(fd);
    }
    ForwardingIo::close(fd);
  }
  ssize_t pread(int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    stall(fd, faults_.stall);
    if (happens(fd, faults_.read_eio)) return -EIO;
    const ssize_t read = ForwardingIo::pread(fd, to, bytes, offset);
    if (read > 0 && happens(fd, faults_.read_corrupt)) {
      std::lock_guard lock(mutex_);
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
  static constexpr size_t kBlock = 4096;  // direct I/O cannot go on in the middle of one

  bool happens(int fd, double probability) {
    if (probability == 0) return false;
    std::lock_guard lock(mutex_);
    return segments_.contains(fd) && std::uniform_real_distribution<>()(random_) < probability;
  }
  void stall(int fd, double probability) {
    if (happens(fd, probability))
      std::this_thread::sleep_for(std::chrono::milliseconds(faults_.stall_ms));
  }

  const DiskFaults faults_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::set<int> segments_;
};

}  // namespace

DiskFaults parse_disk_faults(const std::string& text) {
  DiskFaults faults;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    apply(faults, rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return faults;
}

std::unique_ptr<Io> make_faulty_io(Io& inner, const DiskFaults& faults) {
  return std::make_unique<FaultyIo>(inner, faults);
}

}  // namespace peercached::disk
