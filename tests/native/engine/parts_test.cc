// The small parts of the engine: control queue, location cache, namespaces, nodes, crew.

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <thread>

#include "engine/control.h"
#include "engine/crew.h"
#include "engine/locations.h"
#include "engine/namespaces.h"
#include "engine/nodes.h"

namespace peercached {
namespace {

std::vector<std::byte> payload(const char* text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text);
  return {bytes, bytes + std::strlen(text)};
}

bool readable(int fd, int within_ms = 0) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, within_ms) == 1;
}

TEST(ControlQueue, AnswerReachesItsAsker) {
  ControlQueue queue(16, 1 << 20);
  std::thread plane([&] {
    pollfd one{queue.event_fd(), POLLIN, 0};
    poll(&one, 1, 10'000);
    for (const Event& event : queue.take(16)) queue.answer(event.ticket, event.payload);
  });
  auto answer = queue.ask(EventKind::lookup, payload("hello"), Deadline::after_ms(10'000));
  plane.join();
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, payload("hello"));
}

TEST(ControlQueue, GivenUpQuestionReturnsBeforeItsDeadline) {
  ControlQueue queue(16, 1 << 20);
  std::thread plane([&] {
    pollfd one{queue.event_fd(), POLLIN, 0};
    poll(&one, 1, 10'000);
    for (const Event& event : queue.take(16)) queue.give_up(event.ticket);
  });
  const TimePoint began = Clock::now();
  EXPECT_FALSE(queue.ask(EventKind::clear, payload("x"), Deadline::after_ms(600'000)));
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(300));
  plane.join();
}

TEST(ControlQueue, UnansweredQuestionHasNoAnswerAtItsDeadline) {
  ControlQueue queue(16, 1 << 20);
  EXPECT_FALSE(queue.ask(EventKind::lookup, payload("x"), Deadline::after_ms(5)));
  queue.give_up(1);
  queue.answer(1, payload("late"));  // the ticket has ended: ignored
}

TEST(ControlQueue, FullQueueRefusesAndDemandsAResync) {
  ControlQueue queue(2, 1 << 20);
  queue.post(EventKind::promote, payload("1"));
  queue.post(EventKind::promote, payload("2"));
  queue.tell(payload("3"));
  EXPECT_FALSE(queue.ask(EventKind::lookup, payload("x"), Deadline::after_ms(10'000)));
  EXPECT_EQ(queue.dropped(), 2u);
  auto events = queue.take(16);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, EventKind::lost_updates);
  EXPECT_EQ(events[1].payload, payload("1"));
  EXPECT_FALSE(readable(queue.event_fd()));
}

TEST(ControlQueue, IsBoundedInBytesButLetsOneLargeEventThrough) {
  ControlQueue queue(16, 8);
  queue.tell(payload("larger than eight"));
  queue.tell(payload("x"));
  EXPECT_EQ(queue.dropped(), 1u);
  EXPECT_EQ(queue.take(16).size(), 2u);  // lost_updates and the large one
  queue.tell(payload("x"));
  EXPECT_EQ(queue.take(16).size(), 1u);
}

TEST(ControlQueue, ExpiredQuestionsAreDroppedExceptPublishes) {
  ControlQueue queue(16, 1 << 20);
  EXPECT_FALSE(queue.ask(EventKind::lookup, payload("l"), Deadline::after_ms(1)));
  EXPECT_FALSE(queue.ask(EventKind::publish, payload("p"), Deadline::after_ms(1)));
  auto events = queue.take(16);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::publish);
}

TEST(ControlQueue, StaysReadableWhileEventsAreLeft) {
  ControlQueue queue(16, 1 << 20);
  for (int i = 0; i < 3; ++i) queue.post(EventKind::promote, payload("x"));
  EXPECT_EQ(queue.take(2).size(), 2u);
  EXPECT_TRUE(readable(queue.event_fd(), 60'000));
  EXPECT_EQ(queue.take(2).size(), 1u);
  EXPECT_FALSE(readable(queue.event_fd()));
}

TEST(ControlQueue, ToldPayloadsMergeIntoOneEvent) {
  ControlQueue queue(16, 1 << 20);
  queue.tell(payload("a"));
  queue.tell(payload("b"));
  EXPECT_TRUE(readable(queue.event_fd(), 60'000));
  auto events = queue.take(16);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].payload, payload("ab"));
  queue.tell(payload("c"));
  EXPECT_TRUE(readable(queue.event_fd(), 60'000)) << "again";
}

TEST(ControlQueue, ToldPayloadsKeepTheirOrderAmongQuestions) {
  ControlQueue queue(16, 1 << 20);
  queue.tell(payload("before"));
  ControlQueue::Question question(queue, EventKind::publish, payload("between"),
                                  Deadline::after_ms(1));
  queue.tell(payload("behind"));
  auto events = queue.take(16);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].payload, payload("before"));
  EXPECT_EQ(events[1].payload, payload("between"));
  EXPECT_EQ(events[2].payload, payload("behind"));
}

TEST(ControlQueue, MergedEventIsBoundedInBytes) {
  ControlQueue queue(16, 1 << 20);
  const std::vector<std::byte> much(kToldTogether);
  queue.tell(much);
  queue.tell(payload("x"));
  EXPECT_EQ(queue.take(16).size(), 2u);
}

TEST(ControlQueue, IsBehindByBytesToo) {
  ControlQueue queue(16, 1 << 20);
  queue.tell(std::vector<std::byte>(kBehindBytes));
  EXPECT_FALSE(queue.behind());
  queue.tell(payload("x"));
  EXPECT_TRUE(queue.behind());
  queue.take(16);
  EXPECT_FALSE(queue.behind());
}

TEST(ControlQueue, CloseWakesWaiters) {
  ControlQueue queue(16, 1 << 20);
  std::thread closer([&] { queue.close(); });
  EXPECT_FALSE(queue.ask(EventKind::lookup, payload("x"), Deadline::after_ms(60'000)));
  closer.join();
}

RecordRow row(uint64_t n, HolderIndex holder) {
  RecordRow one;
  one.digest = {n * 0x9e3779b97f4a7c15ull, n};
  one.offset = n * 64;
  one.generation = n;
  one.length = 1;
  one.holder = holder;
  return one;
}

TEST(LocationCache, ForgettingAHolderKeepsOtherHolders) {
  const Running running;
  LocationCache cache(4096, running);
  for (uint64_t n = 1; n <= 200; ++n) cache.put(row(n, n % 2 == 0 ? 3 : 4), Clock::now(), 0);
  cache.forget_holder(3);
  RecordRow found;
  for (uint64_t n = 1; n <= 200; ++n) {
    EXPECT_EQ(cache.find(row(n, 0).digest, TimePoint::min(), found), n % 2 == 1) << n;
  }
}

TEST(LocationCache, IsBoundedAndNewerRowsReplaceOlder) {
  const Running running;
  LocationCache cache(64, running);
  RecordRow found;
  for (uint64_t n = 1; n <= 10'000; ++n) cache.put(row(n, 1), Clock::now(), 0);
  size_t held = 0;
  for (uint64_t n = 1; n <= 10'000; ++n)
    held += cache.find(row(n, 0).digest, TimePoint::min(), found);
  EXPECT_LE(held, cache.entries_max());
  RecordRow newer = row(10'000, 2);
  cache.put(newer, Clock::now(), 0);
  ASSERT_TRUE(cache.find(newer.digest, TimePoint::min(), found));
  EXPECT_EQ(found.holder, 2);
}

TEST(LocationCache, FindIgnoresEntriesOlderThanAsked) {
  const Running running;
  LocationCache cache(64, running);
  const TimePoint then = Clock::now();
  cache.put(row(1, 1), then, 0);
  RecordRow found;
  EXPECT_TRUE(cache.find(row(1, 1).digest, then, found));
  EXPECT_FALSE(cache.find(row(1, 1).digest, then + std::chrono::seconds(1), found));
}

TEST(LocationCache, EntryLearntBeforeARemovalBeganOrEndedIsNotPut) {
  Running running;
  LocationCache cache(64, running);
  const Digest removed = row(1, 1).digest;
  RecordRow found;
  const uint64_t before = running.changes();
  running.begin({&removed, 1});
  cache.put(row(1, 1), Clock::now(), before);
  EXPECT_FALSE(cache.find(removed, TimePoint::min(), found));
  const uint64_t meanwhile = running.changes();
  running.end({&removed, 1});
  cache.put(row(1, 1), Clock::now(), meanwhile);
  EXPECT_FALSE(cache.find(removed, TimePoint::min(), found));
  cache.put(row(1, 1), Clock::now(), running.changes());
  EXPECT_TRUE(cache.find(removed, TimePoint::min(), found));
}

TEST(LocationCache, ZeroEntriesTurnTheCacheOff) {
  const Running running;
  LocationCache cache(0, running);
  cache.put(row(1, 1), Clock::now(), 0);
  RecordRow found;
  EXPECT_FALSE(cache.find(row(1, 1).digest, TimePoint::min(), found));
  cache.forget_holder(1);
}

TEST(Namespaces, NeverShareADigest) {
  NamespaceTable table(Key128{});
  const Digest a = digest_of(table.open("a", 0)->current().key, "key");
  const Digest b = digest_of(table.open("b", 0)->current().key, "key");
  EXPECT_NE(a, b);
  EXPECT_EQ(a, digest_of(table.open("a", 0)->current().key, "key"));
  NamespaceTable other_cluster(Key128{1});
  EXPECT_NE(a, digest_of(other_cluster.open("a", 0)->current().key, "key"));
}

TEST(Namespaces, RaisedEpochMovesEveryKeyAndNamesTheStaleSlot) {
  NamespaceTable table(Key128{});
  const auto ns = table.open("a", 0);
  const NamespaceEpoch before = ns->current();
  uint32_t stale = 0;
  EXPECT_TRUE(table.raise(ns->id(), 1, stale));
  EXPECT_EQ(stale, before.pool_slot);
  EXPECT_NE(digest_of(before.key, "key"), digest_of(ns->current().key, "key"));
  EXPECT_FALSE(table.raise(ns->id(), 1, stale));  // epochs never go back
}

TEST(Namespaces, AnEpochLearntBeforeTheFirstUseCounts) {
  NamespaceTable table(Key128{});
  uint32_t stale = 0;
  EXPECT_TRUE(table.raise(table.id_of("later"), 5, stale));
  EXPECT_EQ(stale, 0u);
  EXPECT_EQ(table.open("later", 0)->current().epoch, 5u);
}

TEST(Namespaces, EpochsMarkDependsOnlyOnTheEpochs) {
  NamespaceTable one(Key128{}), other(Key128{});
  uint32_t stale = 0;
  EXPECT_EQ(one.epochs_mark(), other.epochs_mark());
  one.raise({0, 1}, 5, stale);
  one.raise({0, 2}, 7, stale);
  EXPECT_NE(one.epochs_mark(), other.epochs_mark());
  other.raise({0, 2}, 7, stale);
  other.raise({0, 1}, 4, stale);
  EXPECT_NE(one.epochs_mark(), other.epochs_mark());
  other.raise({0, 1}, 5, stale);
  EXPECT_EQ(one.epochs_mark(), other.epochs_mark());
}

TEST(Namespaces, NamesBeyondTheLimitAreRefused) {
  NamespaceTable table(Key128{});
  EXPECT_EQ(table.open(std::string(kNamespaceBytesMax + 1, 'x'), 0), nullptr);
}

TEST(Namespaces, UnusedNamespacesWithoutPagesMakeRoom) {
  NamespaceTable table(Key128{});
  std::set<uint32_t> with_pages;
  std::vector<uint32_t> forgotten;
  table.forget_unused([&](uint32_t slot) { return with_pages.contains(slot); },
                      [&](uint32_t slot) { forgotten.push_back(slot); });
  const auto held = table.open("held", 1);
  const Digest page = digest_of(table.open("with pages", 1)->current().key, "key");
  with_pages.insert(table.open("with pages", 1)->current().pool_slot);
  for (size_t i = 2; i < kNamespacesPerUserMax; ++i) {
    ASSERT_NE(table.open(std::to_string(i), 1), nullptr) << i;
  }
  EXPECT_TRUE(forgotten.empty());
  EXPECT_NE(table.open("one more", 1), nullptr);
  EXPECT_EQ(forgotten.size(), kNamespacesPerUserMax - 2);
  EXPECT_EQ(table.open("held", 1), held);
  EXPECT_EQ(digest_of(table.open("with pages", 1)->current().key, "key"), page);
}

TEST(Namespaces, UserAtItsLimitLeavesRoomForOthers) {
  NamespaceTable table(Key128{});
  table.forget_unused([](uint32_t) { return true; }, [](uint32_t) {});
  for (size_t i = 0; i < kNamespacesPerUserMax; ++i) {
    ASSERT_NE(table.open(std::to_string(i), 1), nullptr) << i;
  }
  EXPECT_EQ(table.open("one more", 1), nullptr);
  EXPECT_NE(table.open("0", 1), nullptr);
  EXPECT_NE(table.open("one more", 2), nullptr);
}

TEST(NodeTable, IndexIsReusedOnlyAfterItsSweep) {
  NodeTable nodes("self", 1);
  bool swept = false;
  auto reusable = [&](HolderIndex) { return swept; };
  const HolderIndex a = nodes.add("a", 7, reusable).first;
  EXPECT_FALSE(nodes.add("a", 7, reusable).second);
  EXPECT_NE(a, nodes.add("a", 8, reusable).first);  // another incarnation is another node
  nodes.drop(a);
  EXPECT_FALSE(nodes.usable(a));
  EXPECT_NE(a, nodes.add("b", 1, reusable).first);
  swept = true;
  EXPECT_EQ(a, nodes.add("c", 1, reusable).first);
}

TEST(NodeTable, OnlyConnectedNodesThatAreNotSuspectAreRead) {
  NodeTable nodes("self", 1);
  const HolderIndex a = nodes.add("a", 7, [](HolderIndex) { return true; }).first;
  EXPECT_FALSE(nodes.readable(a));
  nodes.set_connected(a, true);
  EXPECT_TRUE(nodes.readable(a));
  nodes.set_suspect(a, true);
  EXPECT_FALSE(nodes.readable(a));
  EXPECT_FALSE(nodes.usable(a));
  nodes.set_suspect(a, false);
  EXPECT_TRUE(nodes.readable(a));
}

TEST(CopyCrew, RunsEveryTaskExactlyOnce) {
  CopyCrew crew(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        std::vector<std::atomic<int>> done(100);
        crew.run(done.size(), 1 << 30, [&](size_t i) { ++done[i]; });
        for (auto& times : done) ASSERT_EQ(times, 1);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

}  // namespace
}  // namespace peercached
