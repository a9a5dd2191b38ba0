// A full file system, for the files of this process.
#pragma once

#include <signal.h>
#include <sys/resource.h>

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

}  // namespace peercached
