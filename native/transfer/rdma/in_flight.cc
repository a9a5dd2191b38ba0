#include "transfer/rdma/in_flight.h"

#include <algorithm>
#include <cassert>

#include "common/event_fd.h"

namespace peercached::rdma {

bool InFlight::take(Place& place, uint64_t bytes) {
  assert(bytes <= kBytesMax);
  MutexLock lock(mutex_);
  if (place.state == Place::State::granted) {
    assert(place.bytes == bytes);
    place.state = Place::State::none;
    return true;
  }
  if (place.state == Place::State::waiting) return false;
  if (waiting_.empty() && bytes <= kBytesMax - bytes_) {
    bytes_ += bytes;
    return true;
  }
  place.bytes = bytes;
  place.state = Place::State::waiting;
  waiting_.push_back(&place);
  return false;
}

void InFlight::give_back(uint64_t bytes) {
  MutexLock lock(mutex_);
  assert(bytes <= bytes_);
  bytes_ -= bytes;
  grant();
}

void InFlight::leave(Place& place) {
  MutexLock lock(mutex_);
  if (place.state == Place::State::granted) bytes_ -= place.bytes;
  if (place.state == Place::State::waiting) std::erase(waiting_, &place);
  place.state = Place::State::none;
  grant();
}

void InFlight::grant() {
  while (!waiting_.empty() && waiting_.front()->bytes <= kBytesMax - bytes_) {
    Place& next = *waiting_.front();
    waiting_.pop_front();
    bytes_ += next.bytes;
    next.state = Place::State::granted;
    ring(next.event_fd);
  }
}

}  // namespace peercached::rdma
