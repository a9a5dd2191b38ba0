// A full file system, or one that hangs, for the files of this process.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <utility>

namespace peercached {

// While it lives, no file grows beyond `bytes`.
class NoRoom {
 public:
  explicit NoRoom(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const struct rlimit tiny { bytes, before_.rlim_max };
    ::setrlimit(RLIMIT_FSIZE, &tiny);
  }
  ~NoRoom() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  struct rlimit before_ {};
};

// While it lives, the first write that makes a file grow beyond `bytes` hangs until release(), and
// fails then. The kernel signals the writing thread inside of its write.
class Hanging {
 public:
  explicit Hanging(rlim_t bytes) : full_(std::in_place, bytes) {
    hangs_ = released_ = false;
    ::signal(SIGXFSZ, [](int) {
      if (hangs_.exchange(true)) return;
      while (!released_) ::usleep(1000);
    });
  }
  ~Hanging() { release(); }
  bool hangs() const { return hangs_; }
  // The write that hangs fails, and later ones have room.
  void release() {
    full_.reset();
    released_ = true;
  }

 private:
  inline static std::atomic<bool> hangs_, released_;
  std::optional<NoRoom> full_;
};

}  // namespace peercached
