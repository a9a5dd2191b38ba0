// All of RDMA on this node, as a provider of the engine: the rails, the published pool, the
// workers' regions, the reading side and the answering side. A thread watches the ports, and the
// proofs of doubted rails.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/event_fd.h"
#include "transfer/provider.h"
#include "transfer/rdma/memory_table.h"
#include "transfer/rdma/rail_watch.h"
#include "transfer/rdma/rdma_engine.h"
#include "transfer/rdma/responder.h"

namespace peercached::rdma {

struct FabricConfig {
  RailPolicy policy;
  LinkSettings link;
  Incarnation incarnation = 0;
  RdmaEngineConfig engine;
  bool must_be_up = false;  // at the start, a rail
};

// RDMA as a choice for the engine. `policy` lacks the host.
ProviderChoice as_choice(const RailPolicy& policy, const LinkSettings& link);

class Fabric final : public Provider {
 public:
  // Opens the devices and registers what is ready of the pool on all of them. Throws
  // std::runtime_error that says what is missing, and the remedy. `requests` must outlive it.
  Fabric(const FabricConfig& config, std::byte* pool, uint64_t pool_bytes, uint64_t ready_bytes,
         ChannelRequests& requests);
  ~Fabric() override;

  std::span<const std::unique_ptr<Rail>> rails() const { return rails_; }
  MemoryTable& regions() { return *regions_; }
  RdmaEngine& engine() const { return *engine_; }
  Responder& responder() { return *responder_; }
  // Handles an event of a device. The watching thread calls it; in tests, any thread.
  void happened(Rail& rail, ibv_event_type what);

  Transport& transport() override { return *engine_; }
  void pool_grew(uint64_t bytes) override { pool_->register_first(bytes); }
  void add_region(std::byte* base, uint64_t bytes, int dma_buf_fd) override {
    regions_->add(base, bytes, dma_buf_fd);
  }
  void remove_region(const std::byte* base) override { regions_->remove(base); }
  void channel_connected(HolderIndex peer, uint32_t channel,
                         std::span<const std::byte> answer) override;
  void channel_refused(HolderIndex peer, uint32_t channel, const std::string& why) override {
    engine_->refused(peer, channel, why);
  }
  std::vector<std::byte> accept_channel(const std::string& node_id, Incarnation incarnation,
                                        std::span<const std::byte> end,
                                        std::span<const uint32_t> closed) override {
    return pack(responder_->accept(node_id, incarnation, unpack_end(end), closed));
  }
  void drop_reader(const std::string& node_id, Incarnation incarnation) override {
    responder_->drop_reader(node_id, incarnation);
  }
  void admit_readers(bool on) override { responder_->open(on); }
  void write_rails(JsonWriter& json, const NameOf& name_of) const override;
  void notify(Notices& notices, const NameOf& name_of) override {
    if (rail_watch_.due()) rail_watch_.notify(rails_now(name_of), notices);
  }
  std::vector<std::pair<std::string, LatencySnapshot>> rail_reads() const override;

 private:
  std::vector<RailNow> rails_now(const NameOf& name_of) const;
  void watch();
  void look(Rail& rail);
  void handle_events(Rail& rail);
  void take_out(Rail& rail, const std::string& why);

  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<RegisteredMemory> pool_;
  std::unique_ptr<MemoryTable> regions_;
  std::unique_ptr<Responder> responder_;
  std::unique_ptr<RdmaEngine> engine_;
  RailWatch rail_watch_;
  std::atomic<bool> stopping_ = false;
  EventFd wake_;
  std::thread watcher_;
};

}  // namespace peercached::rdma
