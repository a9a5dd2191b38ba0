#include "engine/control/control_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <thread>
#include <vector>

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
  auto answer = queue.ask(EventKind::pin, payload("hello"), Deadline::after_ms(10'000));
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
  EXPECT_FALSE(queue.ask(EventKind::pin, payload("x"), Deadline::after_ms(5)));
  queue.give_up(1);
  queue.answer(1, payload("late"));  // the ticket has ended: ignored
}

TEST(ControlQueue, FullQueueRefusesEventsAndQuestions) {
  ControlQueue queue(2, 1 << 20);
  EXPECT_TRUE(queue.post(EventKind::promote, payload("1")));
  EXPECT_TRUE(queue.post(EventKind::promote, payload("2")));
  EXPECT_FALSE(queue.post(EventKind::promote, payload("3")));
  EXPECT_FALSE(queue.ask(EventKind::pin, payload("x"), Deadline::after_ms(10'000)));
  EXPECT_EQ(queue.dropped(), 2u);
  EXPECT_EQ(queue.posted(), 2u);
  auto events = queue.take(16);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].payload, payload("1"));
  EXPECT_FALSE(readable(queue.event_fd()));
}

TEST(ControlQueue, IsBoundedInBytesButLetsOneLargeEventThrough) {
  ControlQueue queue(16, 8);
  EXPECT_TRUE(queue.post(EventKind::promote, payload("larger than eight")));
  EXPECT_FALSE(queue.post(EventKind::promote, payload("x")));
  EXPECT_EQ(queue.take(16).size(), 1u);
  EXPECT_TRUE(queue.post(EventKind::promote, payload("x")));
}

TEST(ControlQueue, ExpiredQuestionsAreDropped) {
  ControlQueue queue(16, 1 << 20);
  EXPECT_FALSE(queue.ask(EventKind::pin, payload("p"), Deadline::after_ms(1)));
  queue.post(EventKind::promote, payload("nobody waits"));
  auto events = queue.take(16);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::promote);
}

TEST(ControlQueue, StaysReadableWhileEventsAreLeft) {
  ControlQueue queue(16, 1 << 20);
  for (int i = 0; i < 3; ++i) queue.post(EventKind::promote, payload("x"));
  EXPECT_EQ(queue.take(2).size(), 2u);
  EXPECT_TRUE(readable(queue.event_fd(), 60'000));
  EXPECT_EQ(queue.take(2).size(), 1u);
  EXPECT_FALSE(readable(queue.event_fd()));
}

TEST(ControlQueue, CloseWakesWaiters) {
  ControlQueue queue(16, 1 << 20);
  std::thread closer([&] { queue.close(); });
  EXPECT_FALSE(queue.ask(EventKind::pin, payload("x"), Deadline::after_ms(60'000)));
  closer.join();
}

}  // namespace
}  // namespace peercached
