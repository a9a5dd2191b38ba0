// Memory that this process shares with the daemon: one file, whatever the number of regions in it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/descriptor.h"

namespace peercached::client {

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  // Throws std::system_error.
  explicit Segment(Descriptor file);
  // A new file of zeros.
  static std::shared_ptr<Segment> create(uint64_t bytes, const char* name);

  // Never given out twice, unlike an address.
  uint64_t number() const { return number_; }
  const FileIdentity& identity() const { return file_.identity(); }
  uint64_t bytes() const { return bytes_; }
  bool of_device() const { return of_device_; }  // a dma-buf, memory of a GPU
  // -1: it is dead, or the program has closed the number.
  int file() const { return file_.get(); }

  // A request was given up while the daemon was writing here, and it is not certain that this is
  // over: nothing may be stored from here, or brought.
  bool quarantined();
  void quarantine(std::shared_ptr<Connection> given_up);

  bool dead() const { return holds_ == 0; }
  // How many segments have died: who counts on them looks when it has changed.
  static uint64_t deaths();

 private:
  friend class Hold;
  friend class Segments;
  const uint64_t number_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  bool of_device_ = false;
  uint64_t holds_ = 0;
  std::vector<std::shared_ptr<Connection>> given_up_;
};

// While there is one, the segment is in use. With the last one its file is closed.
class Hold {
 public:
  explicit Hold(std::shared_ptr<Segment> segment) : segment_(std::move(segment)) {
    ++segment_->holds_;
  }
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<Segment>& segment() const { return segment_; }

 private:
  std::shared_ptr<Segment> segment_;
};

// Those of one client: the same file is the same segment.
class Segments {
 public:
  // Of the segment that is in use for that file already, else of this one. If the program has
  // closed the descriptor of the one in use, that gets this one's.
  std::unique_ptr<Hold> hold(const std::shared_ptr<Segment>& segment);

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<Segment>> by_file_;
};

// All bytes of a segment in this process, shared and writable.
class Mapping {
 public:
  // Throws std::system_error.
  explicit Mapping(const Segment& segment);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0, mapped_bytes_ = 0;
};

}  // namespace peercached::client
