// Writes events as vLLM's KVEventBatch in msgpack (vllm/distributed/kv_events.py):
//
//   batch        [time, [event, ...]]
//   event        {"type": "BlockStored", "block_hashes": [...], "medium": "CPU", ...}
//
// A batch is of one topic, a node and a namespace, and has at most about kBatchBytes. Hashes of one
// medium and block size share an event. In a batch, removals come before what was stored.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/page_name.h"

namespace peercached::kv_events {

inline constexpr size_t kBatchBytes = 60 << 10;

enum class Tier : uint8_t { none, pool, disk };

struct Batch {
  std::string topic;
  std::string payload;
  uint32_t events = 0;  // hashes that were stored or removed, and one for all that were cleared
};

// kv@NODE@NAMESPACE
std::string topic_of(std::string_view node, std::string_view ns);

class BatchWriter {
 public:
  // `time`: of the batches that are made from now on, seconds since 1970.
  void begin(double time) { time_ = time; }

  void cleared(std::string topic);
  void removed(const std::string& topic, bool local, Tier tier, const PageName& name);
  void stored(const std::string& topic, bool local, Tier tier, uint32_t block_tokens,
              const PageName& name);

  // Ends the open batches.
  void end();
  size_t bytes() const { return bytes_; }  // of the batches, about
  std::vector<Batch> take();

 private:
  struct Hashes {
    std::string packed;
    uint32_t count = 0;
  };
  struct Open {
    bool local = false;
    size_t bytes = 0;
    std::map<Tier, Hashes> removed;
    std::map<std::pair<Tier, uint32_t>, Hashes> stored;
  };

  Open& open(const std::string& topic, bool local);
  void add(const std::string& topic, Open& batch, Hashes& hashes, const PageName& name);
  void close(const std::string& topic, Open& batch);

  double time_ = 0;
  size_t bytes_ = 0;
  std::map<std::string, Open> open_;
  std::vector<Batch> done_;
};

}  // namespace peercached::kv_events
