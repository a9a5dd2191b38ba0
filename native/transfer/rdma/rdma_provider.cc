#include "transfer/rdma/rdma_provider.h"

#include <map>
#include <stdexcept>

#include "transfer/rdma/rail_watch.h"

namespace peercached::rdma {
namespace {

class RdmaProvider final : public Provider, private Connector {
 public:
  RdmaProvider(const FabricConfig& config, std::byte* pool, uint64_t pool_bytes,
               ChannelRequests& requests)
      : requests_(requests), fabric_(config, pool, pool_bytes, *this) {}

  void check_that_one_is_up() const {
    std::string all;
    for (const auto& rail : fabric_.rails()) {
      if (rail->up()) return;
      all += (all.empty() ? "" : "; ") + rail->name() + ": " + rail->why_down();
    }
    throw std::runtime_error("no RDMA port can be used: " + all);
  }

  Transport& transport() override { return fabric_.engine(); }
  unsigned rails() const override { return static_cast<unsigned>(fabric_.rails().size()); }

  void add_region(std::byte* base, uint64_t bytes) override { fabric_.regions().add(base, bytes); }
  void add_device_region(std::byte* base, uint64_t bytes, int fd) override {
    fabric_.regions().add_dma_buf(base, bytes, fd);
  }
  void remove_region(const std::byte* base) override { fabric_.regions().remove(base); }

  void channel_connected(HolderIndex peer, uint32_t channel,
                         std::span<const std::byte> answer) override {
    try {
      fabric_.connected(peer, channel, unpack_answer(answer));
    } catch (const std::invalid_argument& error) {
      fabric_.engine().refused(peer, channel, error.what());
    }
  }
  void channel_refused(HolderIndex peer, uint32_t channel, const std::string& why) override {
    fabric_.engine().refused(peer, channel, why);
  }

  std::vector<std::byte> accept_channel(const std::string& node_id, Incarnation incarnation,
                                        std::span<const std::byte> end,
                                        std::span<const uint32_t> closed) override {
    return pack(fabric_.responder().accept(node_id, incarnation, unpack_end(end), closed));
  }
  void drop_reader(const std::string& node_id, Incarnation incarnation) override {
    fabric_.responder().drop_reader(node_id, incarnation);
  }
  void admit_readers(bool on) override { fabric_.responder().open(on); }

  void write_rails(JsonWriter& json, const NameOf& name_of) const override;
  void tell(Notices& notices, const NameOf& name_of) override {
    if (watch_.due()) watch_.tell(rails_now(name_of), notices);
  }
  std::vector<std::pair<std::string, LatencySnapshot>> rail_reads() const override {
    std::vector<std::pair<std::string, LatencySnapshot>> all;
    for (const auto& rail : fabric_.rails()) {
      all.emplace_back(std::to_string(rail->index), rail->counters.chains.snapshot());
    }
    return all;
  }

 private:
  bool connect(HolderIndex peer, const ChannelEnd& own, std::span<const uint32_t> closed) override {
    return requests_.request_channel(peer, own.channel, std::as_bytes(std::span(&own, 1)), closed);
  }

  std::vector<RailNow> rails_now(const NameOf& name_of) const {
    std::vector<RailNow> all;
    for (const auto& rail : fabric_.rails()) {
      all.push_back({rail->name(), rail->why_down(), rail->address(), {}});
    }
    for (const auto& [peer, rail, what] : fabric_.engine().troubles()) {
      if (std::string name = name_of(peer); !name.empty()) {
        all[rail].doubted.emplace(std::move(name), what);
      }
    }
    return all;
  }

  ChannelRequests& requests_;
  RailWatch watch_;
  Fabric fabric_;
};

void RdmaProvider::write_rails(JsonWriter& json, const NameOf& name_of) const {
  const std::vector<RailNow> now = rails_now(name_of);
  for (size_t i = 0; i < now.size(); ++i) {
    const Rail& rail = *fabric_.rails()[i];
    const Port& port = rail.port;
    const RailAddress& address = now[i].address;
    json.open('{').field("rail", rail.index).field("device", port.device);
    json.field("port", port.number).field("gid", text_of(address.gid.gid));
    json.field("gid_index", address.gid.index).field("netdev", address.gid.netdev);
    json.field("mtu", 128 << address.mtu).field("rate_gbps", rail.rate_gbps());
    json.field("numa_node", port.numa_node).field("up", rail.up()).field("why", now[i].why_down);
    json.field("registered_bytes", fabric_.registered_bytes());
    json.field("channels", rail.counters.channels.load());
    json.field("responders", rail.counters.responders.load());
    json.field("pages", rail.counters.pages.load()).field("bytes", rail.counters.bytes.load());
    json.field("errors", rail.counters.errors.load());
    json.key("doubted").open('[');
    for (const auto& [peer, why] : now[i].doubted) {
      json.open('{').field("node_id", peer).field("why", why).close('}');
    }
    json.close(']').close('}');
  }
}

}  // namespace

std::unique_ptr<Provider> make_rdma_provider(const FabricConfig& config, bool must_be_up,
                                             std::byte* pool, uint64_t pool_bytes,
                                             ChannelRequests& requests) {
  auto made = std::make_unique<RdmaProvider>(config, pool, pool_bytes, requests);
  if (must_be_up) made->check_that_one_is_up();
  return made;
}

}  // namespace peercached::rdma
