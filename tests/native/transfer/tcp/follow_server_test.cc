// All followers of a holder share one thread there, and none of them can harm the others.
#include "transfer/tcp/follow_server.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <thread>

#include "transfer/scripted_peer.h"
#include "transfer/tcp/channel.h"

namespace peercached::testing {
namespace {

using Next = ScriptedSource::Next;

std::vector<std::byte> question(uint64_t number, uint32_t wait_ms = 10'000) {
  std::vector<std::byte> frame;
  tcp::append_follow(frame, number, {.number = number}, wait_ms, {});
  return frame;
}

size_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

class FollowServerTest : public TcpTest {
 protected:
  // Answers questions once `open`, and at the end of their time: with the question's number as
  // position. Question 13 gets an endless answer.
  void SetUp() override {
    source->next = [this](Incarnation, const FeedQuestion& asked, bool has_time,
                          tcp::Followed& part) {
      if (asked.number == 13) {
        ++parts;
        if (slow_parts) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        part.rows = rows;
        part.more = true;
        return Next::part;
      }
      ++waiting;
      if (!open && has_time) return Next::wait;
      part.from = part.to = asked.number;
      return Next::part;
    };
  }
  void TearDown() override { tcp::Seal::policy = {}; }

  Holder& holder(TcpServerConfig config = {}) {
    return holder_.emplace(1 << 20, config, kHolderIncarnation, source);
  }
  void tell() {
    open = true;
    ring(source->news.get());
  }
  bool waits() {
    return eventually([this] { return waiting != 0; });
  }
  // Each answer has one frame.
  static bool is_answered(const Wire& wire, uint64_t number) {
    const std::vector<std::byte> frame = wire.receive_frame();
    return !frame.empty() && is_answer(body_of(frame), number);
  }
  static bool is_answer(std::span<const std::byte> body, uint64_t number) {
    tcp::Followed part;
    std::vector<RecordRow> told;
    return tcp::parse_followed(body, number, part, told) == nullptr && part.to == number;
  }
  bool has_channels(uint64_t count) {
    return eventually([&] { return holder_->server->stats().channels == count; });
  }

  const std::shared_ptr<ScriptedSource> source = std::make_shared<ScriptedSource>();
  std::atomic<bool> open{false};
  std::atomic<unsigned> waiting{0}, parts{0};
  bool slow_parts = false;  // as of a large scan: a reader takes them as they come
  std::vector<RecordRow> rows{tcp::kRowsPerFollowedMax};
  std::optional<Holder> holder_;
};

TEST_F(FollowServerTest, ManyFollowersShareOneThread) {
  Holder& here = holder();
  const size_t before = threads();
  std::vector<Wire> followers;
  for (uint64_t n = 0; n < 64; ++n) {
    followers.push_back(connect_and_greet(here));
    EXPECT_TRUE(followers.back().send(question(100 + n)));
  }
  EXPECT_TRUE(eventually([&] { return waiting >= 64 && threads() == before; })) << threads();
  tell();
  for (uint64_t n = 0; n < 64; ++n) {
    EXPECT_TRUE(is_answered(followers[n], 100 + n));
    EXPECT_TRUE(followers[n].send(question(200 + n)));
    EXPECT_TRUE(is_answered(followers[n], 200 + n));
  }
  EXPECT_EQ(here.server->stats().channels, 64u);
}

TEST_F(FollowServerTest, QuestionIsAnsweredWithoutNewsWhenItsTimeIsOver) {
  Wire follower = connect_and_greet(holder());
  EXPECT_TRUE(follower.send(question(1, 20)));
  EXPECT_TRUE(is_answered(follower, 1));
}

TEST_F(FollowServerTest, FollowerThatReadsNothingDelaysNobody) {
  TcpServerConfig config;
  config.stall_timeout_ms = 600'000;
  Holder& here = holder(config);
  Wire slow = connect_and_greet(here), other = connect_and_greet(here);
  EXPECT_TRUE(slow.send(question(13)));
  EXPECT_TRUE(eventually([&] { return parts > 3; }));
  open = true;
  unsigned before;
  uint64_t number = 100;
  // Until the slow one's socket is full, and for some time after that.
  do {
    before = parts;
    for (int i = 0; i < 100; ++i, ++number) {
      ASSERT_TRUE(other.send(question(number)));
      ASSERT_TRUE(is_answered(other, number));
    }
  } while (parts != before);
  EXPECT_EQ(here.server->stats().channels, 2u);
}

TEST_F(FollowServerTest, LongAnswerToAQuickFollowerDelaysNobody) {
  open = slow_parts = true;
  rows.resize(1);
  Holder& here = holder();
  Wire quick = connect_and_greet(here), other = connect_and_greet(here);
  EXPECT_TRUE(quick.send(question(13)));
  std::thread reads([&] {
    while (!quick.receive_frame().empty()) {
    }
  });
  EXPECT_TRUE(eventually([&] { return parts > 3; }));
  for (uint64_t number = 100; number < 110; ++number) {
    EXPECT_TRUE(other.send(question(number)));
    EXPECT_TRUE(is_answered(other, number));
  }
  here.server->drop_peer("reader", kReaderIncarnation);
  reads.join();
}

TEST_F(FollowServerTest, FollowerThatReadsNothingIsCutOff) {
  TcpServerConfig config;
  config.stall_timeout_ms = 50;
  Holder& here = holder(config);
  Wire slow = connect_and_greet(here), waiting_one = connect_and_greet(here);
  EXPECT_TRUE(waiting_one.send(question(1)));
  EXPECT_TRUE(slow.send(question(13)));
  EXPECT_TRUE(eventually([&] { return here.server->stats().stalls == 1; }));
  EXPECT_TRUE(has_channels(1));
  tell();
  EXPECT_TRUE(is_answered(waiting_one, 1)) << "to wait is no stall";
}

TEST_F(FollowServerTest, QuestionsReadAheadAreAnsweredInOrder) {
  open = true;
  Wire follower = connect_and_greet(holder());
  std::vector<std::byte> frames;
  tcp::append_lookup(frames, 7, 1, std::vector<Digest>(1));
  for (uint64_t number = 101; number <= 120; ++number) {
    const auto one = question(number);
    frames.insert(frames.end(), one.begin(), one.end());
  }
  const auto half = std::span(frames).first(frames.size() - 10);
  EXPECT_TRUE(follower.send(half));
  EXPECT_FALSE(follower.receive_frame().empty()) << "the lookup";
  for (uint64_t number = 101; number < 120; ++number) EXPECT_TRUE(is_answered(follower, number));
  EXPECT_TRUE(follower.send(std::span(frames).last(10)));
  EXPECT_TRUE(is_answered(follower, 120));
}

TEST_F(FollowServerTest, SealedFollowerGetsLongAnswersWhole) {
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i].generation = i;
  for (const bool kernel : {true, false}) {
    tcp::Seal::policy.kernel_sends = tcp::Seal::policy.kernel_receives = kernel;
    TcpServerConfig config;
    config.sealed = true;
    tcp::Channel channel(tcp::Dial(as_reader()).to(holder(config).endpoint()));
    ASSERT_TRUE(eventually([&] {
      channel.catch_up();
      return channel.state() == tcp::Channel::State::ready;
    }));
    const auto receive = [&](std::span<std::byte> to) {
      return eventually([&] {
        const ssize_t n = channel.stream().receive(to.data(), to.size());
        if (n > 0) to = to.subspan(static_cast<size_t>(n));
        return to.empty();
      });
    };
    const auto frame = [&](uint64_t request, tcp::Followed& part, std::vector<RecordRow>& told) {
      std::vector<std::byte> bytes(sizeof(tcp::FrameHeader));
      if (!receive(bytes)) return false;
      tcp::FrameHeader header;
      std::memcpy(&header, bytes.data(), sizeof header);
      bytes.resize(header.body_bytes);
      return receive(bytes) && tcp::parse_followed(bytes, request, part, told) == nullptr;
    };
    open = true;
    std::vector<std::byte> frames = question(1);
    for (const uint64_t number : {2, 13}) {  // read ahead with the first one
      const auto more = question(number);
      frames.insert(frames.end(), more.begin(), more.end());
    }
    EXPECT_EQ(channel.stream().send(frames), static_cast<ssize_t>(frames.size()));
    tcp::Followed part;
    std::vector<RecordRow> told;
    for (const uint64_t number : {1, 2}) {
      EXPECT_TRUE(frame(number, part, told));
      EXPECT_EQ(part.to, number);
    }
    // More than the socket takes at once.
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(frame(13, part, told)) << i;
      ASSERT_EQ(told.size(), rows.size());
      ASSERT_TRUE(
          std::ranges::equal(told, rows, {}, &RecordRow::generation, &RecordRow::generation));
    }
  }
}

TEST_F(FollowServerTest, FollowerThatLeavesOrIsDroppedEndsWhileItWaits) {
  Holder& here = holder();
  {
    Wire follower = connect_and_greet(here);
    EXPECT_TRUE(follower.send(question(1)));
    EXPECT_TRUE(waits());
  }
  EXPECT_TRUE(has_channels(0));
  waiting = 0;
  Wire follower = connect_and_greet(here);
  EXPECT_TRUE(follower.send(question(2)));
  EXPECT_TRUE(waits());
  here.server->drop_peer("reader", kReaderIncarnation + 1);
  EXPECT_EQ(here.server->stats().channels, 1u);
  here.server->drop_peer("reader", kReaderIncarnation);
  EXPECT_TRUE(follower.ends());
  EXPECT_TRUE(has_channels(0));
}

TEST_F(FollowServerTest, ServerEndsWhileFollowersWaitAndReceive) {
  Holder& here = holder();
  Wire waiting_one = connect_and_greet(here), receiving = connect_and_greet(here);
  EXPECT_TRUE(waiting_one.send(question(1)));
  EXPECT_TRUE(receiving.send(question(13)));
  EXPECT_TRUE(eventually([&] { return waiting != 0 && parts > 3; }));
  here.server.reset();
  EXPECT_TRUE(waiting_one.ends());
  EXPECT_TRUE(receiving.ends());
}

TEST_F(FollowServerTest, ChannelWithoutAnAnswerOrWithABadFrameEnds) {
  TcpServerConfig config;
  config.stall_timeout_ms = 50;
  Holder& here = holder(config);
  open = true;
  const auto follow = [&] {
    Wire wire = connect_and_greet(here);
    EXPECT_TRUE(wire.send(question(1)));
    EXPECT_TRUE(is_answered(wire, 1));
    return wire;
  };
  const Wire half = follow();
  const std::vector<std::byte> second = question(2);
  EXPECT_TRUE(half.send(std::span(second).first(20)));
  EXPECT_TRUE(half.ends());
  EXPECT_EQ(here.server->stats().bad_frames, 1u);
  const Wire other_kind = follow();
  std::vector<std::byte> lookup;
  tcp::append_lookup(lookup, 7, 1, std::vector<Digest>(1));
  EXPECT_TRUE(other_kind.send(lookup));
  EXPECT_TRUE(other_kind.ends());
  EXPECT_EQ(here.server->stats().bad_frames, 2u);
  const Wire closed = follow();
  source->next = [](auto...) { return Next::none; };
  EXPECT_TRUE(closed.send(question(2)));
  EXPECT_TRUE(closed.ends());
  EXPECT_EQ(here.server->stats().bad_frames, 2u);
}

TEST_F(FollowServerTest, IdleFollowerIsClosed) {
  TcpServerConfig config;
  config.idle_timeout_ms = 50;
  open = true;
  Wire follower = connect_and_greet(holder(config));
  EXPECT_TRUE(follower.send(question(1)));
  EXPECT_TRUE(is_answered(follower, 1));
  EXPECT_TRUE(follower.ends());
  EXPECT_TRUE(has_channels(0));
}

}  // namespace
}  // namespace peercached::testing
