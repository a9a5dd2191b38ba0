// One worker connection: reads a request, executes it, replies; one request at a time.
//
// Runs on its own thread. It closes the stream only between requests. So the end of the stream also
// tells the client that its last request is no longer running.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ipc/frame_stream.h"
#include "ipc/server_state.h"

namespace peercached::ipc {

class Connection {
 public:
  Connection(ServerState& state, UniqueFd socket, const Visitor& visitor);

  void run();                      // until the peer leaves, misbehaves, or `stop`
  void stop() { stream_.stop(); }  // from any thread

 private:
  struct Answer {
    uint32_t count = 0, value = 0;
    std::string_view body;
  };

  bool serve_one(Frame& frame);  // false: close
  void tell_stages(const RequestHeader& header, uint32_t count);
  bool read(Frame& frame);
  Answer dispatch(Frame& frame);
  RequestContext context_of(const RequestHeader& header);
  Answer hello(const Frame& frame);
  Answer register_region(const Frame& frame);
  Answer register_device(const Frame& frame);
  Answer unregister_region(const Frame& frame);
  Answer pages(const Frame& frame);
  void drop_lost_regions();
  void shrink_scratch();

  ServerState& state_;
  const Visitor visitor_;
  FrameStream stream_;
  const Deadline hello_by_;
  std::shared_ptr<Attachment> attachment_;
  std::shared_ptr<GatePage> gate_;
  uint32_t features_ = 0;  // of the client

  // Scratch, kept between requests.
  std::vector<PageRef> pages_;
  FrameMemory::Share scratch_;  // accounts for a large `pages_`
  std::vector<std::shared_ptr<Region>> regions_;
  std::vector<DeviceLayout> layouts_;  // of the request, if it has some
  std::string body_;
};

}  // namespace peercached::ipc
