// Pages that go from a device into the pool and from there to another device.

#include "engine/paths/device_pages.h"

#include "device_memory.h"
#include "engine/engine_fixture.h"

namespace peercached {
namespace {

constexpr uint32_t kRowBytes = 256, kLayers = 3, kTokens = 4;  // of a page
constexpr uint32_t kGpuPageBytes = kRowBytes * kLayers * kTokens;
constexpr uint64_t kGpuPages = 8;
constexpr uint64_t kLayerBytes = kGpuPages * kTokens * kRowBytes;

// The memory of a device is ordered by layer. A page is ordered by token, then by layer.
struct Gpu {
  explicit Gpu(Engine& engine, uint8_t number = 1) : memory(kLayers * kLayerBytes, number) {
    imported = engine.import_device(memory.handle());
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      layout.rows.push_back({{layer * kLayerBytes, kTokens * kRowBytes, kRowBytes, kRowBytes,
                              kTokens, layer * kRowBytes, kLayers * kRowBytes, layer},
                             imported.get()});
    }
  }

  std::vector<PageRef> refs(std::span<const std::string> keys, uint64_t first = 0) const {
    std::vector<PageRef> pages(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      pages[i].key = keys[i];
      pages[i].length = kGpuPageBytes;
      pages[i].layout = &layout;
      pages[i].number = first + i;
    }
    return pages;
  }
  // The bytes of a page in the order that the layout gives them.
  std::vector<std::byte> page(uint64_t number) {
    std::vector<std::byte> bytes;
    for (uint64_t token = 0; token < kTokens; ++token) {
      for (uint64_t layer = 0; layer < kLayers; ++layer) {
        const auto at =
            memory.bytes().begin() +
            static_cast<ptrdiff_t>(layer * kLayerBytes + (number * kTokens + token) * kRowBytes);
        bytes.insert(bytes.end(), at, at + kRowBytes);
      }
    }
    return bytes;
  }

  DeviceMemory memory;
  std::shared_ptr<device::Memory> imported;
  DeviceLayout layout;
};

class DevicePages : public EnginePair {
 protected:
  DevicePages() { gpu_ = Gpus::stand_in; }

  static std::vector<PageStatus> statuses(std::span<const PageRef> pages) {
    std::vector<PageStatus> all;
    for (const PageRef& page : pages) all.push_back(page.status);
    return all;
  }
  static std::vector<PageStatus> all(PageStatus status, size_t count = kGpuPages) {
    return std::vector<PageStatus>(count, status);
  }
  static std::vector<std::string> keys() {
    std::vector<std::string> names;
    for (uint64_t i = 0; i < kGpuPages; ++i) names.push_back("page " + std::to_string(i));
    return names;
  }
};

TEST_F(DevicePages, GoFromADeviceOverAPeerToAnotherDevice) {
  open(64 << 20);
  Gpu from(a_->engine), to(b_->engine);
  from.memory.fill(3);
  const auto names = keys();
  auto set = from.refs(names);
  a_->engine.set(a_->context(kPatienceMs), set);
  ASSERT_EQ(statuses(set), all(PageStatus::ok));
  // In the order of the layout: a worker with host memory reads the same page.
  Pages there("page ", kGpuPages, kGpuPageBytes);
  ASSERT_EQ(b_->get(there), all(PageStatus::ok));
  for (uint64_t i = 0; i < kGpuPages; ++i) {
    EXPECT_EQ(
        std::memcmp(there.memory.data() + i * kGpuPageBytes, from.page(i).data(), kGpuPageBytes),
        0);
  }
  auto got = to.refs(names);
  b_->engine.get(b_->context(kPatienceMs), got);
  ASSERT_EQ(statuses(got), all(PageStatus::ok));
  for (uint64_t i = 0; i < kGpuPages; ++i) EXPECT_EQ(to.page(i), from.page(i)) << i;
}

TEST_F(DevicePages, ComeFromOurOwnPool) {
  open(64 << 20);
  Pages pages = a_->stored("page ", kGpuPages, kGpuPageBytes);
  Gpu to(a_->engine);
  to.memory.faults().backwards = 1;
  const auto names = keys();
  auto got = to.refs(names);
  a_->engine.get(a_->context(kPatienceMs), got);
  ASSERT_EQ(statuses(got), all(PageStatus::ok));
  for (uint64_t i = 0; i < kGpuPages; ++i) {
    EXPECT_EQ(
        std::memcmp(pages.memory.data() + i * kGpuPageBytes, to.page(i).data(), kGpuPageBytes), 0);
  }
}

TEST_F(DevicePages, OfALostDeviceAreNotStoredAndOthersAre) {
  open(64 << 20);
  Gpu lost(a_->engine, 1), other(a_->engine, 2);
  const auto names = keys();
  lost.memory.faults().fail_after = 5;
  auto set = lost.refs(names);
  a_->engine.set(a_->context(kPatienceMs), set);
  EXPECT_EQ(statuses(set), all(PageStatus::region_lost));
  EXPECT_EQ(a_->counter("reserved"), 0u);
  set = other.refs(names);
  a_->engine.set(a_->context(kPatienceMs), set);
  EXPECT_EQ(statuses(set), all(PageStatus::ok));
  auto got = lost.refs(names);
  a_->engine.get(a_->context(kPatienceMs), got);
  EXPECT_EQ(statuses(got), all(PageStatus::region_lost));
}

TEST_F(DevicePages, OfAWorkerThatGaveUpAreNotStored) {
  open(64 << 20);
  Gpu from(a_->engine);
  from.memory.faults().held = 1;
  const auto names = keys();
  auto set = from.refs(names);
  std::thread worker([&] { a_->engine.set(a_->context(kPatienceMs), set); });
  ASSERT_TRUE(eventually([&] { return a_->copying(); }));
  a_->fence(true);
  from.memory.faults().held = 0;
  worker.join();
  EXPECT_EQ(statuses(set), all(PageStatus::deadline));
  a_->fence(false);
  Pages there("page ", kGpuPages, kGpuPageBytes);
  EXPECT_EQ(a_->get(there), all(PageStatus::absent));
}

// The answer is a promise of silence, and a copy that runs cannot be stopped.
TEST_F(DevicePages, AreAnsweredOnlyWhenNoCopyRuns) {
  open(64 << 20);
  a_->stored("page ", kGpuPages, kGpuPageBytes);
  Gpu to(a_->engine);
  to.memory.faults().held = 1;
  const auto names = keys();
  auto got = to.refs(names);
  const RequestContext context = a_->context(500);
  std::atomic<bool> answered{false};
  std::thread worker([&] {
    a_->engine.get(context, got);
    answered = true;
  });
  EXPECT_TRUE(eventually([&] { return a_->copying(); }));
  EXPECT_TRUE(eventually([&] { return context.deadline.passed(); }));
  EXPECT_TRUE(a_->copying());
  EXPECT_FALSE(answered);
  to.memory.faults().held = 0;
  worker.join();
  EXPECT_EQ(statuses(got), all(PageStatus::ok));
}

// When it is told of a stage, all pages have it. The next one may be under way, others are not.
TEST_F(DevicePages, LandStageByStage) {
  open(64 << 20);
  Gpu from(a_->engine), to(b_->engine);
  from.memory.fill(3);
  const auto names = keys();
  auto set = from.refs(names);
  a_->engine.set(a_->context(kPatienceMs), set);
  for (Side* node : {a_.get(), b_.get()}) {  // from its pool, and from a peer
    Gpu there(node->engine);
    there.memory.faults().backwards = 1;
    RequestContext context = node->context(kPatienceMs);
    std::vector<uint32_t> told;
    const TellStages tell = [&](uint32_t count) {
      told.push_back(count);
      EXPECT_EQ(
          std::memcmp(there.memory.bytes().data(), from.memory.bytes().data(), count * kLayerBytes),
          0);
    };
    context.tell_stages = &tell;
    auto got = there.refs(names);
    node->engine.get(context, got);
    EXPECT_EQ(statuses(got), all(PageStatus::ok));
    EXPECT_EQ(told, (std::vector<uint32_t>{1, 2, 3}));
  }
}

TEST_F(DevicePages, TellOfNoStageThatAPageLacks) {
  open(64 << 20);
  Pages pages = a_->stored("page ", kGpuPages - 1, kGpuPageBytes);
  Gpu to(a_->engine);
  const auto names = keys();
  std::vector<uint32_t> told;
  const TellStages tell = [&](uint32_t count) { told.push_back(count); };
  RequestContext context = a_->context(kPatienceMs);
  context.tell_stages = &tell;
  auto got = to.refs(names);
  a_->engine.get(context, got);
  EXPECT_EQ(got.back().status, PageStatus::absent);
  EXPECT_EQ(told, std::vector<uint32_t>{});
  // The device fails within the second stage, or the first: two are under way at once.
  to.memory.faults().fail_after = kGpuPages + 2;
  got = to.refs(std::span(names).first(kGpuPages - 1));
  a_->engine.get(context, got);
  EXPECT_EQ(statuses(got), all(PageStatus::region_lost, kGpuPages - 1));
  EXPECT_LE(told.size(), 1u);
}

// A short error is that of the call alone. It is not the holder's fault, so no other one is asked,
// and stages that have landed are not written again.
TEST_F(DevicePages, WhoseCopyIsRefusedAreErrorsOnce) {
  open(64 << 20);
  Gpu from(a_->engine);
  from.memory.faults().refused = 1;
  const auto names = keys();
  auto set = from.refs(names);
  a_->engine.set(a_->context(kPatienceMs), set);
  EXPECT_EQ(statuses(set), all(PageStatus::error));
  EXPECT_EQ(a_->counter("reserved"), 0u);
  set = from.refs(names);
  a_->engine.set(a_->context(kPatienceMs), set);
  ASSERT_EQ(statuses(set), all(PageStatus::ok));
  for (Side* node : {a_.get(), b_.get()}) {  // from its pool, and from a peer
    Gpu there(node->engine);
    const uint64_t retries = node->counter("stale_retries");
    for (const PageStatus expected : {PageStatus::error, PageStatus::ok}) {
      there.memory.faults().refused = expected == PageStatus::error ? 1 : 0;
      auto got = there.refs(names);
      node->engine.get(node->context(kPatienceMs), got);
      EXPECT_EQ(statuses(got), all(expected));
    }
    EXPECT_EQ(node->counter("stale_retries"), retries);
  }
}

TEST_F(DevicePages, OfUnlikeLayoutsGoInOneCall) {
  open(64 << 20);
  Gpu one(a_->engine), other(a_->engine);
  one.memory.fill(3);
  other.memory.fill(4);
  other.layout.rows.resize(1);  // a page is one layer's
  const auto names = keys();
  auto set = one.refs(names);
  for (size_t i = 1; i < kGpuPages; i += 2) {
    set[i].layout = &other.layout;
    set[i].length = kTokens * kRowBytes;
  }
  other.layout.rows[0].page_pitch = kRowBytes;
  a_->engine.set(a_->context(kPatienceMs), set);
  ASSERT_EQ(statuses(set), all(PageStatus::ok));
  Pages first("page ", 1, kGpuPageBytes), second("page ", 2, kTokens * kRowBytes);
  a_->get(first);
  EXPECT_EQ(std::memcmp(first.memory.data(), one.page(0).data(), kGpuPageBytes), 0);
  EXPECT_EQ(a_->get(second), (std::vector{PageStatus::length_mismatch, PageStatus::ok}));
  EXPECT_EQ(std::memcmp(second.memory.data() + kTokens * kRowBytes,
                        other.memory.bytes().data() + kTokens * kRowBytes, kTokens * kRowBytes),
            0);
}

// A device that hangs holds no slot that another one needs.
TEST_F(DevicePages, OfADeviceThatHangsDoNotHoldUpAnother) {
  open(64 << 20);
  a_->stored("page ", kGpuPages, kGpuPageBytes);
  Gpu hanging(b_->engine, 1), other(b_->engine, 2);
  hanging.memory.faults().held = 1;
  const auto names = keys();
  std::vector<std::thread> workers;
  for (uint64_t i = 0; i < kGpuPages; ++i) {
    workers.emplace_back([&, i] {
      auto got = hanging.refs(std::span(names).subspan(i, 1), i);
      b_->engine.get(b_->context(kPatienceMs), got);
    });
  }
  EXPECT_TRUE(eventually([&] { return b_->copying(); }));
  auto got = other.refs(names);
  b_->engine.get(b_->context(kPatienceMs), got);
  EXPECT_EQ(statuses(got), all(PageStatus::ok));
  hanging.memory.faults().held = 0;
  for (std::thread& one : workers) one.join();
}

TEST_F(DevicePages, WithOneNumberTakeOnlyTheFirst) {
  open(64 << 20);
  a_->stored("page ", 2, kGpuPageBytes);
  Gpu to(a_->engine);
  const auto names = keys();
  auto got = to.refs(std::span(names).first(2));
  got[1].number = got[0].number;
  a_->engine.get(a_->context(kPatienceMs), got);
  EXPECT_EQ(statuses(got), (std::vector{PageStatus::ok, PageStatus::bad_range}));
}

TEST_F(DevicePages, MoreThanTheBounceHoldsComeInRounds) {
  open(512 << 20);
  constexpr uint32_t kLarge = 12 << 20;  // two of them in a slot
  constexpr uint64_t kCount = 5;
  Pages pages = a_->stored("page ", kCount, kLarge);
  DeviceMemory memory(kCount * kLarge);
  const auto imported = b_->engine.import_device(memory.handle());
  const DeviceLayout layout{{{{0, kLarge, 0, kLarge, 1, 0, 0}, imported.get()}}};
  auto got = pages.refs();
  for (uint64_t i = 0; i < kCount; ++i) {
    got[i].memory = nullptr;
    got[i].layout = &layout;
    got[i].number = i;
  }
  RequestContext context = b_->context(kPatienceMs);
  std::vector<uint32_t> told;
  const TellStages tell = [&](uint32_t count) { told.push_back(count); };
  context.tell_stages = &tell;
  b_->engine.get(context, got);
  ASSERT_EQ(statuses(got), all(PageStatus::ok, kCount));
  EXPECT_EQ(told, std::vector<uint32_t>{1}) << "told once, in the last round";
  EXPECT_EQ(std::memcmp(memory.bytes().data(), pages.memory.data(), kCount * kLarge), 0);
}

}  // namespace
}  // namespace peercached
