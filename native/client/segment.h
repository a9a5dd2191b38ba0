// A file that this process shares with the daemon. Several regions may be in one segment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/connection.h"
#include "client/descriptor.h"
#include "ipc/wire.h"

namespace peercached::client {

// The content of a REGISTER, or with a `device` of a REGISTER_DEVICE.
struct Registration {
  uint64_t bytes = 0;
  std::optional<ipc::RegisterDevice> device{};
};

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  // Throws std::system_error.
  explicit Segment(Descriptor file);
  // A new file of zeros.
  static std::shared_ptr<Segment> create(uint64_t bytes, const char* name);
  // Memory of a device that the daemon imports. The file is a part of its name, or only an
  // identity.
  Segment(Descriptor file, ipc::RegisterDevice device);

  // Unlike an address, it is never used again for another segment.
  uint64_t number() const { return number_; }
  // Memory of devices has one of its own: the file may be the same for all of a GPU.
  FileIdentity identity() const {
    const auto& device = registration_.device;
    return device ? FileIdentity{device->identity[0], device->identity[1]} : file_.identity();
  }
  uint64_t bytes() const { return registration_.bytes; }
  const Registration& registration() const { return registration_; }
  bool of_device() const { return of_device_; }  // a GPU's, also a dma-buf: it cannot be mapped
  // -1 if the segment is dead, or if the program has closed the descriptor.
  int file() const { return file_.get(); }

  // Whether the daemon may still be writing here for a request that was given up. Pages are neither
  // set from a quarantined segment nor received into it.
  bool quarantined();
  void quarantine(std::shared_ptr<Connection> given_up);

  bool dead() const { return holds_ == 0; }
  // How many segments of this process have died. A session looks for dead ones when this changes.
  static uint64_t deaths();

 private:
  friend class Hold;
  friend class Segments;
  const uint64_t number_;
  Descriptor file_;
  Registration registration_;
  bool of_device_ = false;
  uint64_t holds_ = 0;
  std::vector<std::shared_ptr<Connection>> given_up_;
};

// Keeps a segment in use. When the last hold goes, the segment is dead and its file is closed.
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

// The segments of one client. Each file is one segment.
class Segments {
 public:
  // A hold on the segment that is in use for the same file, or on the given one if there is none.
  // If the program has closed the descriptor of the one in use, it takes over the given one's.
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
