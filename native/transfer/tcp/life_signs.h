// Signs of life: statements of nodes about themselves, in the questions and answers of followers.
//
// These travel between native threads every second or two in any case. So a heartbeat without news
// need not be sent: membership counts a sign instead (peercached/membership/signs.py). A sign also
// shows that the control plane runs: if that stops renewing the sign, the sign expires.
//
// Thread safe.
#pragma once

#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/types.h"
#include "transfer/tcp/frames.h"

namespace peercached::tcp {

class LifeSigns {
 public:
  // The last sign of one process. `answered`: when it last answered a question of ours, which shows
  // that it hears us; TimePoint::min() if never.
  struct Heard {
    Incarnation who = 0;
    LifeSign sign;
    TimePoint at{};
    TimePoint answered = TimePoint::min();
  };

  // Sets our own sign. It expires at `until`.
  void say(const LifeSign& sign, TimePoint until);
  LifeSign own(TimePoint now) const;

  // A holder has answered us, or a follower has asked us (`answered` is false).
  void hear(Incarnation who, const LifeSign& sign, TimePoint now, bool answered);

  // Returns the signs received since the last call, the last one of each process.
  std::vector<Heard> take();

 private:
  mutable Mutex mutex_;
  LifeSign own_ GUARDED_BY(mutex_);
  TimePoint own_until_ GUARDED_BY(mutex_){};
  // At most one per process; take() empties it several times a second.
  std::unordered_map<Incarnation, Heard> heard_ GUARDED_BY(mutex_);
};

}  // namespace peercached::tcp
