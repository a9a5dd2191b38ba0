// The holder's side: queue pairs for the READs of admitted peers from the published pool. Once a
// channel is connected, the processor has no part in it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "transfer/rdma/memory.h"

namespace peercached::rdma {

class Responder {
 public:
  // `pool` must be completely registered, on all rails.
  Responder(std::span<const std::unique_ptr<Rail>> rails, const RegisteredMemory& pool,
            Incarnation incarnation);

  // Makes a channel for one reader, on our rail with the reader's rail number (modulo our count) or
  // the next one that is up. `closed`: numbers of channels that the reader has given up. Throws
  // std::invalid_argument for an invalid end, std::runtime_error if it cannot be connected.
  ChannelAnswer accept(const std::string& node_id, Incarnation incarnation,
                       const ChannelEnd& reader, std::span<const uint32_t> closed);
  // A reader has left the membership: from now on it can read nothing.
  void drop_reader(const std::string& node_id, Incarnation incarnation);
  // Whether anybody can read anything from now on. Initially open.
  void open(bool open);
  size_t channels() const;

 private:
  struct Served {
    uint32_t number = 0;  // the reader's
    Rail* rail = nullptr;
    QueuePair qp;
  };
  struct Reader {
    Incarnation incarnation = 0;
    std::vector<Served> channels;
  };
  template <typename Gone>  // bool(uint32_t number)
  static void forget(std::vector<Served>& channels, Gone gone);
  // Makes room for one more channel on this rail of ours.
  static void forget_oldest(std::vector<Served>& channels, const Rail& rail);
  Rail& rail_for(uint32_t wanted) const;

  const std::span<const std::unique_ptr<Rail>> rails_;
  const RegisteredMemory& pool_;
  const Incarnation incarnation_;
  std::vector<CompletionQueue> queues_;  // one per rail; nothing ever completes there
  mutable Mutex mutex_;
  std::map<std::string, Reader> readers_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace peercached::rdma
