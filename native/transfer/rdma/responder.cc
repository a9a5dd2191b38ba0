#include "transfer/rdma/responder.h"

#include <algorithm>

namespace peercached::rdma {
namespace {

// Per reader and rail of ours: the most that max_channels_per_peer allows. A reader with more has
// given up an older channel, and its notice was lost.
constexpr std::ptrdiff_t kChannelsMax = 64;

}  // namespace

template <typename Gone>
void Responder::forget(std::vector<Served>& channels, Gone gone) {
  std::erase_if(channels, [&](const Served& served) {
    if (!gone(served.number)) return false;
    served.rail->counters.responders.fetch_sub(1, std::memory_order_relaxed);
    return true;
  });
}

void Responder::forget_oldest(std::vector<Served>& channels, const Rail& rail) {
  const auto of_rail = [&](const Served& served) { return served.rail == &rail; };
  if (std::count_if(channels.begin(), channels.end(), of_rail) < kChannelsMax) return;
  const uint32_t oldest = std::find_if(channels.begin(), channels.end(), of_rail)->number;
  forget(channels, [&](uint32_t number) { return number == oldest; });
}

Responder::Responder(std::span<const std::unique_ptr<Rail>> rails, const RegisteredMemory& pool,
                     Incarnation incarnation)
    : rails_(rails), pool_(pool), incarnation_(incarnation) {
  for (const auto& rail : rails_) {
    CompletionQueue queue(Verbs::get().create_cq(rail->context(), 1, nullptr, nullptr, 0));
    if (!queue) refused("creating a completion queue on " + rail->name());
    queues_.push_back(std::move(queue));
  }
}

Rail& Responder::rail_for(uint32_t wanted) const {
  for (size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = *rails_[(wanted + i) % rails_.size()];
    if (rail.up()) return rail;
  }
  throw std::runtime_error("none of its rails is up: " + rails_[0]->why_down());
}

ChannelAnswer Responder::accept(const std::string& node_id, Incarnation incarnation,
                                const ChannelEnd& reader, std::span<const uint32_t> closed) {
  Rail& rail = rail_for(reader.rail);
  {
    MutexLock lock(mutex_);
    if (closed_) throw std::runtime_error("this node serves no pages now");
    Reader& known = readers_[node_id];
    if (known.incarnation != incarnation) {
      // A node runs one process, so the channels of its earlier incarnation are useless.
      forget(known.channels, [](uint32_t) { return true; });
      known.incarnation = incarnation;
    }
    forget(known.channels, [&](uint32_t number) {
      return std::find(closed.begin(), closed.end(), number) != closed.end();
    });
    for (const Served& served : known.channels) {
      if (served.number != reader.channel) continue;
      throw std::invalid_argument("channel " + std::to_string(reader.channel) + " of " + node_id +
                                  " is there already");
    }
  }
  // Not under the lock: the kernel may first resolve the reader's address over the network.
  QueuePair qp = rail.make_queue_pair(queues_[rail.index].get(), 1, 1, true);
  ChannelEnd own = rail.describe(*qp.get(), random_psn());
  own.channel = reader.channel;
  rail.answer(qp.get(), own, reader);
  MutexLock lock(mutex_);
  const auto known = readers_.find(node_id);
  if (known == readers_.end() || known->second.incarnation != incarnation) {
    throw std::runtime_error(node_id + " is no member any more");
  }
  forget_oldest(known->second.channels, rail);
  known->second.channels.push_back({reader.channel, &rail, std::move(qp)});
  rail.counters.responders.fetch_add(1, std::memory_order_relaxed);
  return {own,
          {incarnation_, reinterpret_cast<uint64_t>(pool_.base()), pool_.bytes(),
           pool_.chunk_bytes(), pool_.remote_keys(rail)}};
}

void Responder::drop_reader(const std::string& node_id, Incarnation incarnation) {
  MutexLock lock(mutex_);
  const auto found = readers_.find(node_id);
  if (found == readers_.end() || found->second.incarnation != incarnation) return;
  forget(found->second.channels, [](uint32_t) { return true; });
  readers_.erase(found);
}

void Responder::open(bool open) {
  MutexLock lock(mutex_);
  closed_ = !open;
  if (open) return;
  for (auto& [node_id, reader] : readers_) forget(reader.channels, [](uint32_t) { return true; });
  readers_.clear();
}

size_t Responder::channels() const {
  MutexLock lock(mutex_);
  size_t count = 0;
  for (const auto& [node_id, reader] : readers_) count += reader.channels.size();
  return count;
}

}  // namespace peercached::rdma
