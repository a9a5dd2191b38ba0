// Two engines in one process that follow each other and read from each other over loopback. A
// thread that knows both plays the control plane.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include "engine/engine.h"
#include "eventually.h"

namespace peercached {

inline constexpr int64_t kPatienceMs = 20'000;
inline constexpr uint64_t kFirstView = 1;

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
       const std::string& faults, Gpus gpu = Gpus::off)
      : engine(config(name, folder, pool_bytes, faults, gpu)) {
    engine.publisher().set_patience(std::chrono::milliseconds(kPatienceMs));
    engine.start();
  }

  std::vector<PageStatus> set(Pages& pages) { return run(pages, &Engine::set); }
  // Pages that are set here.
  Pages stored(const std::string& label, size_t count, uint32_t bytes) {
    Pages pages(label, count, bytes);
    pages.fill();
    set(pages);
    return pages;
  }
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

  // A number of status_json().
  uint64_t counter(const std::string& name) {
    const std::string status = engine.operator_view().status_json();
    const size_t at = status.find('"' + name + "\":");
    if (at == std::string::npos) {
      ADD_FAILURE() << "no counter " << name << " in " << status;
      return 0;
    }
    return std::stoull(status.substr(at + name.size() + 3));
  }
  RecordTable& records() { return engine.directory().records(); }
  // Whether it has leases of all members in this view.
  bool knows_all(uint64_t view_number) {
    std::vector<RecordRow> none;
    return records().find({}, none) == view_number;
  }
  // As if `holder`, which it does not follow, had told these records.
  void hears(HolderIndex holder, std::span<const RecordRow> rows) {
    using Taken = RecordTable::Taken;
    records().ask(holder, Clock::now());
    EXPECT_EQ(records().take(holder, {.rows = rows, .anew = true, .more = true}), Taken::ok);
    EXPECT_EQ(records().take(holder, {.from = 1, .to = 1}), Taken::ok);
    records().ask(holder, Clock::now());
    EXPECT_EQ(records().take(holder, {.from = 1, .to = 1, .lease_view = kFirstView}), Taken::ok);
  }

  int64_t patience_ms = kPatienceMs;
  Engine engine;
  Side* peer = nullptr;
  HolderIndex peer_index = kNoHolder;

 private:
  static EngineConfig config(const char* name, const std::filesystem::path& folder,
                             uint64_t pool_bytes, const std::string& faults, Gpus gpu) {
    EngineConfig config;
    config.gpu = gpu;
    config.node_id = name;
    config.incarnation = name[0];
    config.socket_path = folder / (std::string(name) + ".sock");
    config.pool_bytes = pool_bytes;
    config.shard_entries = 100'000;
    config.copied_records = 100'000;
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

class EnginePair : public ::testing::Test {
 protected:
  void open(uint64_t pool_bytes, const std::string& faults = "") {
    char name[] = "/tmp/peercached-engine-XXXXXX";
    folder_ = mkdtemp(name);
    a_ = std::make_unique<Side>("a", folder_, pool_bytes, faults, gpu_);
    b_ = std::make_unique<Side>("b", folder_, pool_bytes, faults, gpu_);
    for (auto [side, other] : {std::pair(a_.get(), b_.get()), std::pair(b_.get(), a_.get())}) {
      side->peer = other;
      side->peer_index = side->engine.peers().add(name_of(*other), incarnation_of(*other));
      side->engine.readers().admit(name_of(*other), incarnation_of(*other), kToken);
      set_first_ring(*side);
    }
    for (Side* side : {a_.get(), b_.get()}) {
      if (begin_serving_) side->engine.begin_serving();
      threads_.emplace_back([this, side] { control(*side); });
      connect(*side);
    }
    if (begin_serving_) all_know(kFirstView);
  }
  void TearDown() override {
    stopping_ = true;
    for (auto& thread : threads_) thread.join();
    for (auto* side : {&a_, &b_}) {
      if (*side) (*side)->engine.stop();
    }
    expect_silence();
    a_.reset();
    b_.reset();
    std::filesystem::remove_all(folder_);
  }

  // A thread that signs messages while the process exits crashes in OpenSSL, which ended before.
  static void expect_silence() {
    static const std::set<std::string> talk{"follow", "followers",      "accept peers",
                                            "peer",   "accept workers", "worker"};
    std::string name;
    const auto is_silent = [&] {  // a thread is listed for a moment after its join
      for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (talk.contains(name)) return false;
      }
      return true;
    };
    EXPECT_TRUE(eventually(is_silent)) << name << " goes on after the stop";
  }

  const char* name_of(const Side& side) const { return &side == a_.get() ? "a" : "b"; }
  Incarnation incarnation_of(const Side& side) const {
    return static_cast<Incarnation>(*name_of(side));
  }
  PeerEndpoint endpoint_of(Side& side) const {
    return {"127.0.0.1", side.engine.readers().port(), kToken, incarnation_of(side)};
  }
  void connect(Side& side) {
    side.engine.peers().connect(side.peer_index, endpoint_of(*side.peer));
  }
  // `side` follows the other one no more, and has lost its records.
  static void forget_peer(Side& side) {
    side.engine.peers().disconnect(side.peer_index);
    side.records().forget(side.peer_index);
  }

  // Likewise, but it still reads from there.
  void follow_no_more(Side& side) {
    forget_peer(side);
    side.engine.transports().engine().add_peer(side.peer_index, endpoint_of(*side.peer));
    side.engine.nodes().set_connected(side.peer_index, true);
  }

  // Both sides own every digest.
  virtual void set_first_ring(Side& side) {
    side.engine.set_ring(std::make_shared<const Ring>(
        std::vector<uint64_t>{1ull << 62, 1ull << 63},
        std::vector<HolderIndex>{kSelfHolder, side.peer_index}, 2, kFirstView));
  }
  // `owner` owns all digests except one place, which `other` owns.
  static void set_ring(Side& side, HolderIndex owner, HolderIndex other, uint64_t view_number) {
    constexpr uint64_t kPlace = 1ull << 62;
    side.engine.set_ring(std::make_shared<const Ring>(std::vector<uint64_t>{kPlace, kPlace + 1},
                                                      std::vector<HolderIndex>{owner, other}, 1,
                                                      view_number));
  }
  void owns_all(Side& side, uint64_t view_number) {
    set_ring(side, kSelfHolder, side.peer_index, view_number);
    set_ring(*side.peer, side.peer->peer_index, kSelfHolder, view_number);
    all_know(view_number);
  }
  // Waits until both sides have all leases of that view.
  void all_know(uint64_t view_number) {
    ASSERT_TRUE(
        eventually([&] { return a_->knows_all(view_number) && b_->knows_all(view_number); }));
  }

  void control(Side& side) {
    while (!stopping_) {
      pollfd one{side.engine.control().event_fd(), POLLIN, 0};
      if (poll(&one, 1, 20) != 1) continue;
      for (Event& event : side.engine.control().take(256)) {
        auto answer = answer_to(side, event);
        if (event.ticket != 0) side.engine.control().answer(event.ticket, std::move(answer));
      }
    }
  }

  std::vector<std::byte> answer_to(Side& side, const Event& event) {
    if (event.kind == EventKind::remove) {
      return remove_here(
          side, std::span<const std::byte>(event.payload).subspan(sizeof(RemovalQuestion)));
    }
    if (event.kind == EventKind::fetch && fetched_) {
      fetched_(items_of<Digest>(event.payload));
    } else if (event.kind == EventKind::peer_trouble) {
      side.engine.nodes().set_suspect(side.peer_index, false);  // the probe succeeded
    } else if (event.kind == EventKind::promote && promoted_) {
      const std::vector<RecordRow> rows = promoted_();
      const auto bytes = std::as_bytes(std::span(rows));
      return {bytes.begin(), bytes.end()};
    }
    return {};
  }

  // Removes as if the other side had no pages.
  static std::vector<std::byte> remove_here(Side& side, std::span<const std::byte> payload) {
    std::vector<Digest> digests(payload.size() / sizeof(Digest));
    std::memcpy(digests.data(), payload.data(), payload.size());
    std::vector<RecordRow> rows;
    RemovalAnswer head{0, 0};
    if (side.engine.removals().begin(digests, 1, rows) != Removals::Begun::in_journal)
      head.status = static_cast<uint32_t>(PageStatus::error);
    RecordFeed& feed = side.engine.publisher().feed();
    const uint64_t position = feed.tell_now(digests);
    while (!feed.behind(position).empty()) std::this_thread::yield();
    side.engine.removals().end(digests);
    head.were_here = static_cast<uint32_t>(rows.size());
    std::vector<std::byte> answer(sizeof head + rows.size() * sizeof(Digest));
    std::memcpy(answer.data(), &head, sizeof head);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(answer.data() + sizeof head + i * sizeof(Digest), &rows[i].digest,
                  sizeof(Digest));
    }
    return answer;
  }

  inline static const std::string kToken = std::string(32, 't');
  std::filesystem::path folder_;
  std::unique_ptr<Side> a_, b_;
  std::vector<std::thread> threads_;
  // The other side's answer to a request to bring pages from its disk.
  // Brings pages of the object store to a_.
  std::function<void(std::span<const Digest>)> fetched_;
  std::function<std::vector<RecordRow>()> promoted_;
  std::atomic<bool> stopping_{false};
  bool begin_serving_ = true;
  Gpus gpu_ = Gpus::off;
};

}  // namespace peercached
