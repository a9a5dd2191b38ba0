// All of RDMA on this node: the rails, the published pool, the workers' regions, the reading side
// and the answering side. A thread watches the ports, and the proofs of doubted rails.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/event_fd.h"
#include "transfer/rdma/memory_table.h"
#include "transfer/rdma/rdma_engine.h"
#include "transfer/rdma/responder.h"

namespace peercached::rdma {

struct FabricConfig {
  RailPolicy policy;
  LinkSettings link;
  Incarnation incarnation = 0;
  RdmaEngineConfig engine;
};

class Fabric {
 public:
  // Opens the devices and registers the pool on all of them. Throws std::runtime_error that says
  // what is missing, and the remedy.
  Fabric(const FabricConfig& config, std::byte* pool, uint64_t pool_bytes, Connector& connector);
  ~Fabric();

  std::span<const std::unique_ptr<Rail>> rails() const { return rails_; }
  MemoryTable& regions() { return *regions_; }
  RdmaEngine& engine() const { return *engine_; }
  Responder& responder() { return *responder_; }
  // RdmaEngine::connected; the watching thread follows a proof that begins with it.
  void connected(HolderIndex peer, uint32_t channel, ChannelAnswer answer);
  // Handles an event of a device. The watching thread calls it; in tests, any thread.
  void happened(Rail& rail, ibv_event_type what);
  uint64_t registered_bytes() const { return pool_->bytes() + regions_->bytes(); }

 private:
  void watch();
  void look(Rail& rail);
  void handle_events(Rail& rail);
  void take_out(Rail& rail, const std::string& why);

  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<RegisteredMemory> pool_;
  std::unique_ptr<MemoryTable> regions_;
  std::unique_ptr<Responder> responder_;
  std::unique_ptr<RdmaEngine> engine_;
  std::atomic<bool> stopping_ = false;
  EventFd wake_;
  std::thread watcher_;
};

}  // namespace peercached::rdma
