// Two engines in one process that read from each other over loopback. A thread that knows both
// plays the control plane. It fakes the ring's owners; the rest is real.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "engine/engine.h"

namespace peercached {

inline constexpr int64_t kPatienceMs = 20'000;

struct Pages {
  std::vector<std::string> keys;
  std::vector<std::byte> memory;
  uint32_t page_bytes;

  Pages(const std::string& label, size_t count, uint32_t bytes)
      : memory(count * bytes), page_bytes(bytes) {
    for (size_t i = 0; i < count; ++i) keys.push_back(label + std::to_string(i));
  }
  void fill() {
    for (size_t i = 0; i < keys.size(); ++i) {
      std::mt19937_64 random(std::hash<std::string>{}(keys[i]));
      for (size_t at = 0; at < page_bytes; ++at) {
        memory[i * page_bytes + at] = static_cast<std::byte>(random());
      }
    }
  }
  std::vector<PageRef> refs() {
    std::vector<PageRef> pages(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      pages[i].key = keys[i];
      pages[i].memory = memory.data() + i * page_bytes;
      pages[i].length = page_bytes;
    }
    return pages;
  }
};

class Side {
 public:
  Side(const char* name, const std::filesystem::path& folder, uint64_t pool_bytes,
       const std::string& faults, uint64_t copied_records)
      : engine(config(name, folder, pool_bytes, faults, copied_records)) {
    engine.start();
  }

  std::vector<PageStatus> set(Pages& pages) { return run(pages, &Engine::set); }
  std::vector<PageStatus> get(Pages& pages) { return run(pages, &Engine::get); }
  std::vector<PageStatus> remove(Pages& pages) { return run(pages, &Engine::remove); }
  ExistsAnswer exists(Pages& pages) {
    auto refs = pages.refs();
    return engine.exists(context(kPatienceMs), refs, true);
  }
  RequestContext context(int64_t ms) {
    return {engine.open_namespace("ns", 0).get(), 0, Deadline::after_ms(ms), &gate_, {}};
  }
  // Fences the worker, as when it gives up its connection, or lifts the fence.
  void fence(bool on) { gate_page_.fence = on ? 1 : 0; }
  bool copying() const { return gate_page_.writers != 0; }

  int64_t patience_ms = kPatienceMs;
  Engine engine;
  Side* peer = nullptr;
  HolderIndex peer_index = kNoHolder;

 private:
  static EngineConfig config(const char* name, const std::filesystem::path& folder,
                             uint64_t pool_bytes, const std::string& faults,
                             uint64_t copied_records) {
    EngineConfig config;
    config.node_id = name;
    config.incarnation = name[0];
    config.socket_path = folder / (std::string(name) + ".sock");
    config.pool_bytes = pool_bytes;
    config.shard_entries = 100'000;
    config.copied_records = copied_records;
    config.location_cache_entries = 4096;
    config.data_host = "127.0.0.1";
    config.connect_timeout_ms = kPatienceMs;  // a busy machine is no dead peer
    config.faults = faults;
    return config;
  }

  template <typename Operation>
  std::vector<PageStatus> run(Pages& pages, Operation operation) {
    auto refs = pages.refs();
    (engine.*operation)(context(patience_ms), refs);
    std::vector<PageStatus> statuses;
    for (const PageRef& ref : refs) statuses.push_back(ref.status);
    return statuses;
  }

  WriteGatePage gate_page_{};
  WriteGate gate_{&gate_page_};
};

// Both sides own every digest; records are applied to both shards.
class EnginePair : public ::testing::Test {
 protected:
  void open(uint64_t pool_bytes, const std::string& faults = "", uint64_t copied_records = 0) {
    char name[] = "/tmp/peercached-engine-XXXXXX";
    folder_ = mkdtemp(name);
    a_ = std::make_unique<Side>("a", folder_, pool_bytes, faults, copied_records);
    b_ = std::make_unique<Side>("b", folder_, pool_bytes, faults, copied_records);
    join(*a_, *b_);
    join(*b_, *a_);
    for (Side* side : {a_.get(), b_.get()}) {
      if (begin_serving_) side->engine.begin_serving();
      threads_.emplace_back([this, side] { control(*side); });
    }
  }
  void TearDown() override {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
    for (auto* side : {&a_, &b_}) {
      if (*side) (*side)->engine.stop();
    }
    a_.reset();
    b_.reset();
    std::filesystem::remove_all(folder_);
  }

  void join(Side& side, Side& other) {
    const std::string token(32, 't');
    const char* name = &other == a_.get() ? "a" : "b";
    const Incarnation incarnation = static_cast<Incarnation>(name[0]);
    side.peer = &other;
    side.peer_index = side.engine.peers().add(name, incarnation);
    side.engine.readers().admit(name, incarnation, token);
    side.engine.peers().connect(side.peer_index,
                                {"127.0.0.1", other.engine.readers().port(), token, incarnation});
    side.engine.directory().set_ring(
        std::make_shared<const Ring>(std::vector<uint64_t>{1ull << 62, 1ull << 63},
                                     std::vector<HolderIndex>{kSelfHolder, side.peer_index}, 2));
  }

  // `owner` owns all digests except one place, which `other` owns.
  static void set_ring(Side& side, HolderIndex owner, HolderIndex other, uint64_t view_number) {
    constexpr uint64_t kPlace = 1ull << 62;
    side.engine.directory().set_ring(
        std::make_shared<const Ring>(std::vector<uint64_t>{kPlace, kPlace + 1},
                                     std::vector<HolderIndex>{owner, other}, 1, view_number));
  }
  void a_owns_all(uint64_t view_number) {
    set_ring(*a_, kSelfHolder, a_->peer_index, view_number);
    set_ring(*b_, b_->peer_index, kSelfHolder, view_number);
  }

  void control(Side& side) {
    while (!stopping_) {
      pollfd one{side.engine.control().event_fd(), POLLIN, 0};
      if (poll(&one, 1, 20) != 1 || deaf_) continue;
      std::deque<Event> removals;
      handle_events(side, removals);
      for (; !removals.empty(); removals.pop_front()) {
        const auto digests =
            std::span<const std::byte>(removals.front().payload).subspan(sizeof(RemovalQuestion));
        auto answer = remove_here(side, digests, removals);
        side.engine.control().answer(removals.front().ticket, std::move(answer));
      }
    }
  }

  // Appends removals to `removals`, for the caller to handle next.
  void handle_events(Side& side, std::deque<Event>& removals) {
    for (Event& event : side.engine.control().take(256)) {
      if (event.kind == EventKind::remove) {
        removals.push_back(std::move(event));
        continue;
      }
      std::vector<std::byte> answer;
      if (event.kind == EventKind::publish) {
        std::vector<RecordRow> rows(event.payload.size() / sizeof(RecordRow));
        std::ranges::copy(event.payload, std::as_writable_bytes(std::span(rows)).begin());
        publish(side, rows);
      } else if (event.kind == EventKind::peer_trouble) {
        side.engine.nodes().set_suspect(side.peer_index, false);  // the probe succeeded
      } else if (event.kind == EventKind::lookup && &side == b_.get() && while_b_looks_up_) {
        while_b_looks_up_();
      } else if (event.kind == EventKind::promote && promoted_) {
        const std::vector<RecordRow> rows = promoted_();
        const auto bytes = std::as_bytes(std::span(rows));
        answer.assign(bytes.begin(), bytes.end());
      }
      if (event.ticket != 0) side.engine.control().answer(event.ticket, std::move(answer));
    }
  }

  void publish(Side& side, std::span<const RecordRow> rows) {
    side.engine.directory().shard().apply(kSelfHolder, rows);
    if (tell_owners_) side.peer->engine.directory().shard().apply(side.peer->peer_index, rows);
    side.engine.storage().pool().mark_published(rows);
  }

  // Removes as if the other side had no pages.
  std::vector<std::byte> remove_here(Side& side, std::span<const std::byte> payload,
                                     std::deque<Event>& later) {
    std::vector<Digest> digests(payload.size() / sizeof(Digest));
    std::memcpy(digests.data(), payload.data(), payload.size());
    std::vector<RecordRow> rows;
    RemovalAnswer head{0, 0};
    if (side.engine.removals().begin(digests, rows) != Removals::Begun::kept)
      head.status = static_cast<uint32_t>(PageStatus::error);
    // Publishes of these pages may be in flight: handle them first.
    handle_events(side, later);
    publish(side, rows);
    side.engine.removals().end(digests);
    head.held = static_cast<uint32_t>(rows.size());
    std::vector<std::byte> answer(sizeof head + rows.size() * sizeof(Digest));
    std::memcpy(answer.data(), &head, sizeof head);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(answer.data() + sizeof head + i * sizeof(Digest), &rows[i].digest,
                  sizeof(Digest));
    }
    return answer;
  }

  std::filesystem::path folder_;
  std::unique_ptr<Side> a_, b_;
  std::vector<std::thread> threads_;
  std::function<void()> while_b_looks_up_;  // on the thread that answers b's requests
  // The other side's answer to a request to bring pages from its disk.
  std::function<std::vector<RecordRow>()> promoted_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> deaf_{false};  // the control planes get no events
  std::atomic<bool> tell_owners_{true};
  bool begin_serving_ = true;
};

}  // namespace peercached
