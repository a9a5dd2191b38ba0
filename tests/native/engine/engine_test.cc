// Pages through two engines: set on one, read on the other, even while slots are constantly reused.

#include "engine/engine_fixture.h"

namespace peercached {
namespace {

TEST_F(EnginePair, PagesAreReadByteForByteOnTheOtherNode) {
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

TEST_F(EnginePair, StatusCanBeReadWhileItStops) {
  open(64 << 20);
  Pages pages = a_->stored("k", 4, 4096);
  EXPECT_EQ(b_->get(pages), std::vector(4, PageStatus::ok));
  const TcpServerStats before = a_->engine.readers().stats();
  EXPECT_GT(before.accepted, 0u);
  std::atomic<bool> stopped{false};
  std::thread reader([&] {
    while (!stopped) (void)a_->counter("accepted");
  });
  a_->engine.stop();
  stopped = true;
  reader.join();
  EXPECT_GE(a_->engine.readers().stats().accepted, before.accepted) << "its counts stay";
}

TEST_F(EnginePair, UnknownKeysAndOtherLengthsAreMisses) {
  open(64 << 20);
  Pages out = a_->stored("k", 4, 4096);
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

TEST_F(EnginePair, PagesThatWouldOverwriteEachOtherAreNotBothGot) {
  open(64 << 20);
  Pages out = a_->stored("k", 3, 4096);
  for (Side* side : {a_.get(), b_.get()}) {
    Pages in("k", 3, 4096);
    auto refs = in.refs();
    refs[0].memory = in.memory.data() + 4096;
    refs[1].memory = in.memory.data() + 100;  // overlaps the destination of the first
    side->engine.get(side->context(kPatienceMs), refs);
    EXPECT_EQ(refs[1].status, PageStatus::ok);
    EXPECT_EQ(refs[0].status, PageStatus::bad_range);
    EXPECT_EQ(refs[2].status, PageStatus::ok);
    EXPECT_EQ(std::memcmp(in.memory.data() + 100, out.memory.data() + 4096, 4096), 0);
  }
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
  Pages pages = a_->stored("k", 20, 65'536);
  const Digest id = a_->engine.storage().namespaces().id_of("ns");
  for (Side* side : {a_.get(), b_.get()}) EXPECT_TRUE(side->engine.storage().raise_epoch(id, 1));
  Pages back("k", 20, 65'536);
  EXPECT_EQ(a_->exists(back).prefix, 0u);
  for (PageStatus status : b_->get(back)) EXPECT_EQ(status, PageStatus::absent);
}

// Rule 1 under load: one side constantly reuses slots while the other reads them.
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

TEST_F(EnginePair, ReaderNeverSeesAReusedSlotDespiteFaultyTransfers) {
  open(8 << 20, "seed=3,corrupt=0.05,truncate=0.05,drop=0.05,reset=0.01");
  hammer(*a_, *b_, 100);
}

}  // namespace
}  // namespace peercached
