#include "disk/read_lane.h"

#ifdef PEERCACHED_URING
#include <liburing.h>

#include <cerrno>
#endif

namespace peercached::disk {
namespace {

class PlainLane final : public ReadLane {
 public:
  explicit PlainLane(Io& io) : io_(io) {}
  unsigned depth() const override { return 1; }
  unsigned slots() const override { return 1; }
  void start(unsigned, int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    error_ = read_all(io_, fd, to, bytes, offset);
  }
  void submit() override {}
  void wait(std::vector<Done>& done) override { done.push_back({0, error_}); }

 private:
  Io& io_;
  int error_ = 0;
};

#ifdef PEERCACHED_URING
class UringLane final : public ReadLane {
 public:
  UringLane(unsigned depth, unsigned slots) : depth_(depth), reads_(slots) {
    works_ = ::io_uring_queue_init(slots, &ring_, 0) == 0;
  }
  ~UringLane() override {
    if (works_) ::io_uring_queue_exit(&ring_);
  }
  bool works() const { return works_; }
  unsigned depth() const override { return depth_; }
  unsigned slots() const override { return static_cast<unsigned>(reads_.size()); }

  void start(unsigned slot, int fd, std::byte* to, size_t bytes, uint64_t offset) override {
    reads_[slot] = {fd, to, bytes, offset};
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // there is one for each slot
    ::io_uring_prep_read(entry, fd, to, static_cast<unsigned>(bytes), offset);
    ::io_uring_sqe_set_data64(entry, slot);
  }

  void submit() override {
    while (::io_uring_submit(&ring_) == -EINTR) {
    }
  }

  void wait(std::vector<Done>& done) override {
    while (::io_uring_submit_and_wait(&ring_, 1) == -EINTR) {
    }
    io_uring_cqe* entry = nullptr;
    while (::io_uring_peek_cqe(&ring_, &entry) == 0) {
      const auto slot = static_cast<unsigned>(::io_uring_cqe_get_data64(entry));
      const int result = entry->res;
      ::io_uring_cqe_seen(&ring_, entry);
      done.push_back({slot, rest_of(reads_[slot], result)});
    }
  }

 private:
  struct Read {
    int fd;
    std::byte* to;
    size_t bytes;
    uint64_t offset;
  };
  // Reads the rest after a short read, which is rare, with pread.
  static int rest_of(const Read& read, int result) {
    size_t have = 0;
    if (result >= 0) have = static_cast<size_t>(result);
    if (result < 0 && result != -EINTR && result != -EAGAIN) return result;
    if (have == read.bytes) return 0;
    return read_all(posix_io(), read.fd, read.to + have, read.bytes - have, read.offset + have);
  }

  io_uring ring_{};
  const unsigned depth_;
  std::vector<Read> reads_;
  bool works_ = false;
};
#endif

}  // namespace

std::unique_ptr<ReadLane> make_plain_lane(Io& io) { return std::make_unique<PlainLane>(io); }

std::unique_ptr<ReadLane> make_uring_lane([[maybe_unused]] unsigned depth,
                                          [[maybe_unused]] unsigned slots) {
#ifdef PEERCACHED_URING
  auto lane = std::make_unique<UringLane>(depth, slots);
  if (lane->works()) return lane;
#endif
  return nullptr;
}

}  // namespace peercached::disk
