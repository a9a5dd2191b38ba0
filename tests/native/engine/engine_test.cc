// Two engines in one process, read from each other over loopback, with the control plane played by
// a thread that knows both: who owns what is the ring's affair, the rest is the real thing.

#include "engine/engine.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "common/copy.h"

namespace peercached {
namespace {

constexpr int64_t kPatienceMs = 20'000;

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
       const std::string& faults)
      : engine(config(name, folder, pool_bytes, faults)) {
    engine.start();
  }

  std::vector<PageStatus> set(Pages& pages) { return run(pages, &Engine::set); }
  std::vector<PageStatus> get(Pages& pages) { return run(pages, &Engine::get); }
  ExistsAnswer exists(Pages& pages) {
    auto refs = pages.refs();
    return engine.exists(context(kPatienceMs), refs, true);
  }
  RequestContext context(int64_t ms) {
    return {engine.open_namespace("ns"), Deadline::after_ms(ms), &gate_, {}};
  }

  Engine engine;
  Side* peer = nullptr;
  HolderIndex peer_index = kNoHolder;

 private:
  static EngineConfig config(const char* name, const std::filesystem::path& folder,
                             uint64_t pool_bytes, const std::string& faults) {
    EngineConfig config;
    config.node_id = name;
    config.incarnation = name[0];
    config.socket_path = folder / (std::string(name) + ".sock");
    config.pool_bytes = pool_bytes;
    config.shard_entries = 100'000;
    config.location_cache_entries = 4096;
    config.data_host = "127.0.0.1";
    config.faults = faults;
    return config;
  }

  std::vector<PageStatus> run(Pages& pages, void (Engine::*operation)(const RequestContext&,
                                                                      std::span<PageRef>)) {
    auto refs = pages.refs();
    (engine.*operation)(context(kPatienceMs), refs);
    std::vector<PageStatus> statuses;
    for (const PageRef& ref : refs) statuses.push_back(ref.status);
    return statuses;
  }

  WriteGatePage gate_page_{};
  WriteGate gate_{&gate_page_};
};

// Both sides own every digest; records are applied to both shards.
class EnginePair : public testing::Test {
 protected:
  void open(uint64_t pool_bytes, const std::string& faults = "") {
    char name[] = "/tmp/peercached-engine-XXXXXX";
    folder_ = mkdtemp(name);
    a_ = std::make_unique<Side>("a", folder_, pool_bytes, faults);
    b_ = std::make_unique<Side>("b", folder_, pool_bytes, faults);
    join(*a_, *b_);
    join(*b_, *a_);
    for (Side* side : {a_.get(), b_.get()}) {
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
    side.peer_index = side.engine.add_node(name, incarnation);
    side.engine.admit_reader(name, incarnation, token);
    side.engine.connect_node(side.peer_index,
                             {"127.0.0.1", other.engine.data_port(), token, incarnation});
    side.engine.set_ring(
        std::make_shared<const Ring>(std::vector<uint64_t>{1ull << 62, 1ull << 63},
                                     std::vector<HolderIndex>{kSelfHolder, side.peer_index}, 2));
  }

  void control(Side& side) {
    while (!stopping_) {
      pollfd one{side.engine.control().event_fd(), POLLIN, 0};
      if (poll(&one, 1, 20) != 1) continue;
      for (Event& event : side.engine.control().take(256)) {
        std::vector<std::byte> answer;
        if (event.kind == EventKind::publish) {
          std::vector<RecordRow> rows(event.payload.size() / sizeof(RecordRow));
          std::memcpy(rows.data(), event.payload.data(), event.payload.size());
          side.engine.shard().apply(kSelfHolder, rows);
          side.peer->engine.shard().apply(side.peer->peer_index, rows);
          side.engine.pool().mark_published(rows);
        } else if (event.kind == EventKind::peer_trouble) {
          side.engine.suspect_node(side.peer_index, false);  // probed, and well
        }
        if (event.ticket != 0) side.engine.control().answer(event.ticket, std::move(answer));
      }
    }
  }

  std::filesystem::path folder_;
  std::unique_ptr<Side> a_, b_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_{false};
};

TEST_F(EnginePair, PagesSetOnOneNodeAreReadByteForByteOnTheOther) {
  open(64 << 20);
  for (uint32_t bytes : {1u, 100u, 4096u, 70'001u, 1u << 20}) {
    Pages out("k" + std::to_string(bytes) + "/", 20, bytes);
    out.fill();
    for (PageStatus status : a_->set(out)) ASSERT_EQ(status, PageStatus::ok);
    Pages in("k" + std::to_string(bytes) + "/", 20, bytes);
    EXPECT_EQ(b_->exists(in).prefix, 20u);
    for (PageStatus status : b_->get(in)) ASSERT_EQ(status, PageStatus::ok);
    EXPECT_EQ(in.memory, out.memory);
    Pages local("k" + std::to_string(bytes) + "/", 20, bytes);
    for (PageStatus status : a_->get(local)) ASSERT_EQ(status, PageStatus::ok);
    EXPECT_EQ(local.memory, out.memory);
  }
}

TEST_F(EnginePair, UnknownKeysAndOtherLengthsAreMisses) {
  open(64 << 20);
  Pages out("k", 4, 4096);
  out.fill();
  a_->set(out);
  Pages longer("k", 4, 8192);
  for (PageStatus status : a_->get(longer)) EXPECT_EQ(status, PageStatus::length_mismatch);
  for (PageStatus status : b_->get(longer)) EXPECT_EQ(status, PageStatus::length_mismatch);
  Pages unknown("u", 4, 4096);
  EXPECT_EQ(b_->exists(unknown).prefix, 0u);
  for (PageStatus status : b_->get(unknown)) EXPECT_NE(status, PageStatus::ok);
  EXPECT_EQ(unknown.memory, std::vector<std::byte>(unknown.memory.size()));
}

TEST_F(EnginePair, DuplicatesInABatchAreNamed) {
  open(64 << 20);
  Pages pages("k", 3, 4096);
  pages.keys[2] = pages.keys[0];
  pages.fill();
  EXPECT_EQ(a_->set(pages),
            (std::vector{PageStatus::ok, PageStatus::ok, PageStatus::duplicate_key}));
}

TEST_F(EnginePair, ABatchLargerThanThePoolDoesNotDeadlock) {
  open(8 << 20);
  Pages pages("k", 300, 65'536);
  pages.fill();
  for (PageStatus status : a_->set(pages)) EXPECT_EQ(status, PageStatus::ok);
  Pages back("k", 300, 65'536);
  size_t held = 0;
  const auto statuses = b_->get(back);
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i] != PageStatus::ok) continue;
    ++held;
    EXPECT_EQ(
        std::memcmp(back.memory.data() + i * 65'536, pages.memory.data() + i * 65'536, 65'536), 0);
  }
  EXPECT_GT(held, 50u);
}

TEST_F(EnginePair, ClearMakesEverythingUnreachableAtOnce) {
  open(64 << 20);
  Pages pages("k", 20, 65'536);
  pages.fill();
  a_->set(pages);
  const Digest id = a_->engine.namespaces().id_of("ns");
  for (Side* side : {a_.get(), b_.get()}) EXPECT_TRUE(side->engine.raise_epoch(id, 1));
  Pages back("k", 20, 65'536);
  EXPECT_EQ(a_->exists(back).prefix, 0u);
  for (PageStatus status : b_->get(back)) EXPECT_EQ(status, PageStatus::absent);
}

// Rule 1 under load: slots are reused all the time while the other side reads them.
void hammer(Side& writer, Side& reader, int rounds) {
  std::atomic<bool> done{false};
  std::thread writing([&] {
    for (int round = 0; round < rounds; ++round) {
      Pages pages("k" + std::to_string(round % 37) + "/", 16, 65'536);
      pages.fill();
      writer.set(pages);
    }
    done = true;
  });
  size_t ok = 0;
  std::mt19937 random(1);
  while (!done) {
    Pages want("k" + std::to_string(random() % 37) + "/", 16, 65'536);
    Pages truth = want;
    truth.fill();
    const auto statuses = reader.get(want);
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (statuses[i] != PageStatus::ok) continue;
      ++ok;
      ASSERT_EQ(
          std::memcmp(want.memory.data() + i * 65'536, truth.memory.data() + i * 65'536, 65'536),
          0);
    }
  }
  writing.join();
  EXPECT_GT(ok, 0u);
}

TEST_F(EnginePair, AReaderNeverSeesAReusedSlot) {
  open(8 << 20);
  hammer(*a_, *b_, 150);
}

TEST_F(EnginePair, AReaderNeverSeesAReusedSlotThoughTransfersAreFaulty) {
  open(8 << 20, "seed=3,corrupt=0.05,truncate=0.05,drop=0.05,reset=0.01");
  hammer(*a_, *b_, 100);
}

}  // namespace
}  // namespace peercached
