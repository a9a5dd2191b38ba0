// The rules that the engine alone enforces (docs/architecture.md), each where it would break first.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "engine/engine_fixture.h"

namespace peercached {
namespace {

bool is(const std::vector<PageStatus>& statuses, PageStatus expected) {
  return std::all_of(statuses.begin(), statuses.end(),
                     [&](PageStatus status) { return status == expected; });
}

// Flips a bit of the first page in a's pool.
void spoil(Side& side, const Pages& pages, size_t at) {
  const Digest first = digest_of(side.engine.open_namespace("ns", 0)->current().key, pages.keys[0]);
  Pool& pool = side.engine.storage().pool();
  PinnedPage page;
  pool.pin({&first, 1}, nullptr, false, {&page, 1});
  ASSERT_TRUE(page);
  page.payload()[at] ^= std::byte{1};
  pool.unpin({&page, 1});
}

// Runs `operation` while its worker gives up in mid-copy. `given_up` is called then.
std::vector<PageStatus> interrupted(
    Side& side, const std::function<std::vector<PageStatus>()>& operation,
    const std::function<void()>& given_up = [] {}) {
  side.fence(false);
  std::atomic<bool> done{false};
  std::thread giving_up([&] {
    while (!side.copying() && !done) {
    }
    side.fence(true);
    given_up();
  });
  const auto statuses = operation();
  done = true;
  giving_up.join();
  return statuses;
}

// --- 1: the right bytes or a miss

TEST_F(EnginePair, CorruptBytesFromAPeerAreAMissAndCounted) {
  open(64 << 20);
  Pages out = a_->stored("k", 1, 70'000);
  spoil(*a_, out, 0);
  Pages in("k", 1, 70'000);
  EXPECT_TRUE(is(b_->get(in), PageStatus::stale));
  EXPECT_EQ(b_->counter("corrupt_remote"), 2u) << "tried twice";
  EXPECT_EQ(b_->counter("corrupt"), 2u) << "of that peer";
  EXPECT_EQ(b_->counter("corrupt_local"), 0u);
}

TEST_F(EnginePair, CorruptPoolPageIsNeverServedAndIsDropped) {
  open(64 << 20);
  Pages out = a_->stored("k", 2, 70'000);
  spoil(*a_, out, 69'999);
  Pages in("k", 2, 70'000);
  EXPECT_EQ(b_->get(in), (std::vector{PageStatus::stale, PageStatus::ok})) << "read by a peer";
  const auto here = a_->get(in);
  EXPECT_NE(here[0], PageStatus::ok);
  EXPECT_EQ(here[1], PageStatus::ok);
  EXPECT_EQ(a_->exists(in).present, (std::vector<uint8_t>{0, 1}));
  EXPECT_TRUE(is(a_->set(out), PageStatus::ok));
  for (Side* side : {a_.get(), b_.get()}) {
    EXPECT_TRUE(is(side->get(in), PageStatus::ok));
    EXPECT_EQ(in.memory, out.memory);
  }
}

// --- 2: a reply promises that no more writes follow

TEST_F(EnginePair, NothingIsWrittenForAFencedWorker) {
  open(64 << 20);
  Pages out = a_->stored("k", 20, 4096);
  for (Side* side : {a_.get(), b_.get()}) {
    side->fence(true);
    Pages in("k", 20, 4096);
    EXPECT_TRUE(is(side->get(in), PageStatus::deadline));
    EXPECT_EQ(in.memory, std::vector<std::byte>(in.memory.size()));
    EXPECT_FALSE(side->copying());
  }
}

TEST_F(EnginePair, CopyOfALargePageStopsWhenItsWorkerGivesUp) {
  open(256 << 20);
  Pages out = a_->stored("k", 1, 64 << 20);
  bool met = false;
  for (int round = 0; !met && round < 100; ++round) {
    Pages in("k", 1, 64 << 20);
    const auto statuses = interrupted(*a_, [&] { return a_->get(in); });
    EXPECT_FALSE(a_->copying());
    if (statuses[0] == PageStatus::ok || in.memory[0] != out.memory[0]) continue;
    met = true;
    EXPECT_EQ(statuses[0], PageStatus::deadline);
    const std::vector<std::byte> untouched(kGatePieceBytes);
    EXPECT_TRUE(std::equal(untouched.begin(), untouched.end(), in.memory.end() - kGatePieceBytes));
  }
  EXPECT_TRUE(met) << "the copies were never met";
}

TEST_F(EnginePair, NoPageIsCopiedPastTheDeadline) {
  open(64 << 20);
  Pages out = a_->stored("k", 20, 4096);
  a_->patience_ms = 0;
  Pages in("k", 20, 4096), more("m", 20, 4096);
  EXPECT_TRUE(is(a_->get(in), PageStatus::deadline));
  EXPECT_EQ(in.memory, std::vector<std::byte>(in.memory.size()));
  EXPECT_TRUE(is(a_->set(more), PageStatus::deadline));
  EXPECT_EQ(a_->exists(more).prefix, 0u);
}

TEST_F(EnginePair, NothingIsStoredFromAFencedWorker) {
  open(64 << 20);
  Pages out("k", 20, 4096);
  a_->fence(true);
  EXPECT_TRUE(is(a_->set(out), PageStatus::deadline));
  EXPECT_EQ(a_->exists(out).prefix, 0u);
  EXPECT_EQ(a_->engine.storage().pool().stats().reserved, 0u);
}

TEST_F(EnginePair, PageIsDroppedIfItsWorkerGivesUpMidCopy) {
  open(256 << 20);
  bool met = false;
  for (int round = 0; !met && round < 100; ++round) {
    Pages out("k" + std::to_string(round), 1, 64 << 20);
    // Still copying: the worker may reuse these bytes now.
    const auto statuses = interrupted(
        *a_, [&] { return a_->set(out); }, [&] { met = a_->copying(); });
    if (!met) continue;
    EXPECT_TRUE(is(statuses, PageStatus::deadline));
    EXPECT_EQ(a_->exists(out).prefix, 0u);
  }
  EXPECT_TRUE(met) << "the copies were never met";
}

TEST_F(EnginePair, SetOfAnotherLengthWaitsForReadersButNotForHolds) {
  open(64 << 20);
  Pages old("k", 1, 4096), fresh("k", 1, 9000), in("k", 1, 9000);
  old.fill();
  fresh.fill();
  a_->set(old);
  Pool& pool = a_->engine.storage().pool();
  const Digest digest = digest_of(a_->context(1).ns->current().key, "k0");
  PinnedPage page;
  pool.pin({&digest, 1}, nullptr, true, {&page, 1});
  EXPECT_TRUE(is(a_->set(fresh), PageStatus::deadline)) << "pinned for longer than a read takes";
  EXPECT_TRUE(is(a_->get(old), PageStatus::ok));

  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.unpin({&page, 1});
  });
  EXPECT_TRUE(is(a_->set(fresh), PageStatus::ok));
  reader.join();
  EXPECT_TRUE(is(a_->get(in), PageStatus::ok));
  EXPECT_EQ(in.memory, fresh.memory);
}

// --- 3: a page is visible when its set returns

TEST_F(EnginePair, PageThatAnOwnerDoesNotKnowIsToldByTheNextSet) {
  open(64 << 20);
  Pages out("k", 4, 4096);
  out.fill();
  forget_peer(*b_);
  a_->patience_ms = 50;
  EXPECT_TRUE(is(a_->set(out), PageStatus::ok)) << "caching goes on without owners";
  EXPECT_EQ(a_->counter("unpublished"), 1u);
  EXPECT_TRUE(is(a_->set(out), PageStatus::ok));
  EXPECT_EQ(a_->counter("unpublished"), 2u) << "held, but the owner has to be told";
  connect(*b_);
  a_->patience_ms = kPatienceMs;
  EXPECT_TRUE(is(a_->set(out), PageStatus::ok));
  EXPECT_EQ(a_->counter("unpublished"), 2u);
  EXPECT_EQ(b_->exists(out).prefix, 4u);
}

TEST_F(EnginePair, PageIsFoundByTheOwnersTableOnceItsSetReturns) {
  open(64 << 20);
  for (int round = 0; round < 50; ++round) {
    Pages out("k" + std::to_string(round), 3, 100);
    a_->set(out);
    std::vector<Digest> digests;
    for (const auto& key : out.keys)
      digests.push_back(digest_of(a_->context(1).ns->current().key, key));
    std::vector<RecordRow> rows;
    b_->records().find(digests, rows);
    ASSERT_EQ(rows.size(), 3u) << "in round " << round;
  }
}

TEST_F(EnginePair, PageRemovedDuringItsSetLeavesNoRecord) {
  open(64 << 20);
  // Many pages, so that queueing their records takes time; the hunter removes the last one. Each
  // round has new keys, because the next set of a key would repair a wrong record.
  std::atomic<int> round{0};
  std::atomic<size_t> caught{0};
  constexpr int kRounds = 100;
  auto pages_of = [](int number) { return Pages("k" + std::to_string(number) + "/", 2000, 16); };
  std::thread hunter([&] {
    for (int at = round; at < kRounds; at = round) {
      Pages hunted("k" + std::to_string(at) + "/1999", 1, 16);
      hunted.keys[0].pop_back();  // the digit that Pages adds
      while (round == at) caught += a_->remove(hunted)[0] == PageStatus::ok;
    }
  });
  for (; round < kRounds; ++round) {
    Pages pages = pages_of(round);
    for (PageStatus status : a_->set(pages))
      EXPECT_TRUE(status == PageStatus::ok || status == PageStatus::removing);
    a_->remove(pages);
  }
  hunter.join();
  EXPECT_GT(caught, 0u);
  for (Side* side : {a_.get(), b_.get()}) EXPECT_EQ(side->records().stats().records, 0u);
}

TEST_F(EnginePair, PageEvictedRightAfterItsSetLeavesNoRecord) {
  open(1 << 20);  // room for three pages
  std::vector<std::thread> setters;
  for (int setter = 0; setter < 4; ++setter) {
    setters.emplace_back([this, setter] {
      for (int round = 0; round < 300; ++round) {
        Pages page(std::to_string(setter) + "/" + std::to_string(round) + "/", 1, 256 << 10);
        a_->set(page);
      }
    });
  }
  for (auto& setter : setters) setter.join();
  EXPECT_TRUE(eventually([&] {
    return b_->records().stats().records == a_->engine.storage().pool().stats().keys;
  })) << b_->records().stats().records
      << " records of " << a_->engine.storage().pool().stats().keys << " pages";
}

TEST_F(EnginePair, ClearGivesTheRoomBack) {
  open(64 << 20);
  Pages pages = a_->stored("k", 20, 65'536);
  ASSERT_TRUE(a_->engine.storage().raise_epoch(a_->engine.storage().namespaces().id_of("ns"), 1));
  EXPECT_TRUE(eventually([&] { return a_->engine.storage().pool().stats().keys == 0; }));
  EXPECT_TRUE(eventually([&] { return b_->records().stats().records == 0; }));
}

// --- 4: never wait for a failing peer, and never promise its pages

// A pause says that removals may have been missed. Pages found before it are not told after it.
TEST_F(EnginePair, ExistsThatWaitsTellsNoPageOfAPausedNode) {
  open(64 << 20);
  Pages pages = a_->stored("page ", 2, 4096);
  auto keys = pages.refs();
  keys[1].key = "nowhere";
  RequestContext context = a_->context(kPatienceMs);
  context.wait = {kPatienceMs, 2};
  std::atomic<bool> waits{false};
  const std::function<bool()> gone = [&] {  // is asked in each turn of the wait
    waits = true;
    return false;
  };
  context.gone = &gone;
  ExistsAnswer answer;
  std::thread worker([&] { answer = a_->engine.exists(context, keys, false); });
  EXPECT_TRUE(eventually([&] { return waits.load(); }));
  a_->engine.set_paused(true);
  worker.join();
  EXPECT_EQ(answer.prefix, 0u);
}

TEST_F(EnginePair, ExistsReportsNoPageOfAnUnreadableNode) {
  open(64 << 20);
  const HolderIndex stranger = b_->engine.peers().add("c", 'c');
  Pages pages("k", 1, 4096);
  RecordRow row;
  row.digest = digest_of(b_->engine.open_namespace("ns", 0)->current().key, pages.keys[0]);
  row.generation = 1;
  row.length = 4096;
  row.flags = kRecordResident;
  b_->hears(stranger, {&row, 1});
  EXPECT_EQ(b_->exists(pages).present[0], 0);
  EXPECT_NE(b_->get(pages)[0], PageStatus::ok);
}

TEST_F(EnginePair, CachedPagesOfASuspectNodeAreNotRead) {
  open(64 << 20);
  Pages pages = a_->stored("k", 4, 4096);
  EXPECT_EQ(b_->exists(pages).prefix, 4u);  // this caches the locations
  b_->engine.nodes().set_suspect(b_->peer_index, true);
  EXPECT_EQ(b_->exists(pages).prefix, 0u);
  EXPECT_TRUE(is(b_->get(pages), PageStatus::suspect));
  b_->engine.nodes().set_suspect(b_->peer_index, false);
  EXPECT_TRUE(is(b_->get(pages), PageStatus::ok));
}

TEST_F(EnginePair, NoPageOfANodeThatMayHaveMissedRemovalsIsUsed) {
  open(64 << 20);
  Pages pages = a_->stored("k", 4, 4096);
  EXPECT_EQ(b_->exists(pages).prefix, 4u);  // this caches the locations
  b_->engine.nodes().set_owes(b_->peer_index, true);
  EXPECT_EQ(b_->exists(pages).prefix, 0u);
  EXPECT_TRUE(is(b_->get(pages), PageStatus::absent));
  b_->engine.nodes().set_owes(b_->peer_index, false);
  EXPECT_TRUE(is(b_->get(pages), PageStatus::ok));
}

TEST_F(EnginePair, APausedNodeServesNobody) {
  open(64 << 20);
  Pages pages = a_->stored("k", 4, 4096);
  a_->engine.set_paused(true);
  EXPECT_EQ(a_->exists(pages).prefix, 0u);
  EXPECT_TRUE(is(a_->get(pages), PageStatus::absent));
  EXPECT_FALSE(is(b_->get(pages), PageStatus::ok));
  a_->engine.set_paused(false);
  EXPECT_TRUE(is(a_->get(pages), PageStatus::ok));
  EXPECT_TRUE(is(b_->get(pages), PageStatus::ok));
}

// --- 6: a process may die or truncate its memory at any instruction

TEST_F(EnginePair, AWorkerThatTruncatesItsMemoryLosesOnlyItsRegion) {
  open(64 << 20);
  constexpr size_t kBytes = 1 << 20;
  Pages out = a_->stored("k", 1, kBytes);
  const int fd = memfd_create("region", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  void* region = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(region, MAP_FAILED);
  ASSERT_EQ(ftruncate(fd, kBytes / 2), 0);
  std::vector<PageRef> page(1);
  const auto status_of = [&](Side& side, const std::string& key,
                             void (Engine::*operation)(const RequestContext&, std::span<PageRef>)) {
    page[0] = {key, static_cast<std::byte*>(region), kBytes};
    (side.engine.*operation)(side.context(kPatienceMs), page);
    return page[0].status;
  };
  EXPECT_EQ(status_of(*a_, "k0", &Engine::get), PageStatus::region_lost);
  EXPECT_EQ(status_of(*b_, "k0", &Engine::get), PageStatus::region_lost);
  EXPECT_EQ(status_of(*a_, "new", &Engine::set), PageStatus::region_lost);
  EXPECT_EQ(b_->exists(out).prefix, 1u) << "an innocent peer is suspect";
  EXPECT_EQ(a_->engine.storage().pool().stats().reserved, 0u);
  // The holder notices only at its next send that its reader has hung up.
  EXPECT_TRUE(eventually([&] { return a_->engine.storage().pool().stats().pins == 0; }));
  Pages in("k", 1, kBytes);
  for (Side* side : {a_.get(), b_.get()}) EXPECT_TRUE(is(side->get(in), PageStatus::ok));
  munmap(region, kBytes);
  close(fd);
}

// --- a clear is in force when it returns, and cleared pages take no room

TEST_F(EnginePair, SetDuringAClearLeavesNoPageAfterTheSweep) {
  open(64 << 20);
  const auto ns = a_->engine.open_namespace("ns", 0);
  const NamespaceEpoch before = ns->current();
  // Another set holds the second page's reservation, so this set waits there.
  Pages pages("k", 2, 4096);
  pages.fill();
  const PageRequest taken{digest_of(before.key, pages.keys[1]), 4096};
  Reservation reservation;
  Pool& pool = a_->engine.storage().pool();
  pool.reserve({&taken, 1}, nullptr, before.pool_slot, {&reservation, 1});
  ASSERT_EQ(reservation.outcome, ReserveOutcome::reserved);
  std::vector<PageStatus> statuses;
  std::thread setter([&] { statuses = a_->set(pages); });
  EXPECT_TRUE(eventually([&] { return pool.stats().keys == 1; }));

  EXPECT_TRUE(a_->engine.storage().raise_epoch(ns->id(), before.epoch + 1));
  EXPECT_TRUE(eventually([&] { return pool.stats().keys == 0; })) << "the sweep";
  pool.abort({&reservation.page, 1});
  setter.join();
  EXPECT_TRUE(is(statuses, PageStatus::ok)) << "as if it had come before the clear";
  EXPECT_TRUE(eventually([&] { return pool.stats().keys == 0; }))
      << "a page that nobody can find takes room";
  EXPECT_EQ(a_->exists(pages).prefix, 0u);
  EXPECT_TRUE(is(a_->set(pages), PageStatus::ok));
  EXPECT_EQ(b_->exists(pages).prefix, 0u) << "it has not heard of the clear";
  EXPECT_TRUE(b_->engine.storage().raise_epoch(ns->id(), before.epoch + 1));
  EXPECT_TRUE(is(b_->get(pages), PageStatus::ok));
}

// --- 7: least privilege

TEST_F(EnginePair, AReaderWithoutTheRightTokenGetsNothing) {
  open(64 << 20);
  Pages pages = a_->stored("k", 4, 4096);
  const PeerEndpoint right = endpoint_of(*a_);
  PeerEndpoint wrong = right;
  wrong.token.back() = 'x';
  b_->engine.peers().connect(b_->peer_index, wrong);
  for (PageStatus status : b_->get(pages)) EXPECT_NE(status, PageStatus::ok);

  b_->engine.peers().connect(b_->peer_index, right);
  EXPECT_TRUE(eventually([&] { return is(b_->get(pages), PageStatus::ok); }));
  a_->engine.readers().expel("b", 'b');
  for (PageStatus status : b_->get(pages)) EXPECT_NE(status, PageStatus::ok) << "it has left";
}

TEST_F(EnginePair, DuplicateNodeIdDoesNotShutOutTheFirstReader) {
  open(64 << 20);
  Pages pages = a_->stored("k", 4, 4096);
  // Its handshake succeeds, and it is refused as a duplicate. Nothing of it remains.
  a_->engine.readers().admit("b", 'x', std::string(32, 'x'));
  EXPECT_TRUE(is(b_->get(pages), PageStatus::ok));
  a_->engine.readers().expel("b", 'x');
  EXPECT_TRUE(is(b_->get(pages), PageStatus::ok));
}

}  // namespace
}  // namespace peercached
