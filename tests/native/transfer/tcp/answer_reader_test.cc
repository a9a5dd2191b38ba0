#include "transfer/tcp/answer_reader.h"

#include <cstring>
#include <random>

#include "transfer/tcp_fixture.h"

namespace peercached::tcp {
namespace {

using testing::fill_page;
using testing::is_page;
using testing::is_painted;
using testing::kPaint;

constexpr uint64_t kRequest = 5;

// A holder's answer for pages of these lengths and statuses, with the places of its payloads.
struct Exchange {
  explicit Exchange(std::vector<uint32_t> lengths, std::vector<PageStatus> statuses_in)
      : statuses(std::move(statuses_in)) {
    size_t total_bytes = 0;
    for (uint32_t length : lengths) total_bytes += length;
    memory.assign(total_bytes, kPaint);
    uint64_t following_bytes = 0;
    std::byte* dest = memory.data();
    for (size_t i = 0; i < lengths.size(); ++i) {
      ReadOp op;
      op.length = lengths[i];
      op.dest = dest;
      dest += lengths[i];
      ops.push_back(op);
      if (statuses[i] == PageStatus::ok) following_bytes += sizeof(SlotHeader) + lengths[i];
    }
    append_pages(stream, kRequest, statuses, following_bytes);
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (statuses[i] != PageStatus::ok) continue;
      SlotHeader header;
      header.generation = 1000 + i;
      const auto* bytes = reinterpret_cast<const std::byte*>(&header);
      stream.insert(stream.end(), bytes, bytes + sizeof header);
      std::vector<std::byte> payload(lengths[i]);
      fill_page(payload.data(), payload.size(), i);
      stream.insert(stream.end(), payload.begin(), payload.end());
    }
  }

  // Feeds the stream to `reader`, at most `piece()` bytes at a time.
  template <typename Piece>
  const char* play(AnswerReader& reader, Piece piece) {
    size_t at = 0;
    while (!reader.done()) {
      std::array<iovec, 4> places;
      const size_t count = reader.places(places, piece());
      EXPECT_GT(count, 0u);
      size_t bytes = 0;
      for (size_t i = 0; i < count; ++i) {
        const size_t n = std::min(places[i].iov_len, stream.size() - at);
        std::memcpy(places[i].iov_base, stream.data() + at, n);
        at += n;
        bytes += n;
      }
      if (const char* wrong = reader.took(bytes, landed)) return wrong;
    }
    EXPECT_EQ(at, stream.size());
    return nullptr;
  }

  std::vector<PageStatus> statuses;
  std::vector<std::byte> memory, stream;
  std::vector<ReadOp> ops;
  std::vector<ReadOp*> landed;
};

TEST(AnswerReader, EveryWayToCutTheStreamGivesTheSamePages) {
  std::mt19937_64 random(3);
  const std::vector<uint32_t> lengths = {1, 64, 5000, 63, 300, 7, 4096};
  for (int round = 0; round < 300; ++round) {
    std::vector<PageStatus> statuses;
    for (size_t i = 0; i < lengths.size(); ++i) {
      statuses.push_back(random() % 3 ? PageStatus::ok : PageStatus::stale);
    }
    Exchange exchange(lengths, statuses);
    AnswerReader reader;
    reader.expect(kRequest, exchange.ops);
    const size_t most_bytes = 1 + random() % (round % 2 ? 9 : 9000);
    ASSERT_EQ(exchange.play(reader, [&] { return 1 + random() % most_bytes; }), nullptr);
    size_t landed = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const ReadOp& op = exchange.ops[i];
      if (statuses[i] == PageStatus::ok) {
        EXPECT_EQ(exchange.landed.at(landed++), &op) << "in order, once";
        EXPECT_EQ(op.status, PageStatus::pending) << "the sink decides";
        EXPECT_EQ(op.header.generation, 1000 + i);
        EXPECT_TRUE(is_page(op.dest, op.length, i));
      } else {
        EXPECT_EQ(op.status, PageStatus::stale);
        EXPECT_TRUE(is_painted(op.dest, op.length));
      }
    }
    EXPECT_EQ(landed, exchange.landed.size());
  }
}

TEST(AnswerReader, AnAnswerWithoutAnyPageIsDoneWithItsPreamble) {
  Exchange exchange({10, 20}, {PageStatus::stale, PageStatus::stale});
  AnswerReader reader;
  reader.expect(kRequest, exchange.ops);
  EXPECT_EQ(exchange.play(reader, [] { return 1000; }), nullptr);
  EXPECT_TRUE(exchange.landed.empty());
}

TEST(AnswerReader, LengthMismatchingTheStatusesIsRefusedBeforeAnyWrite) {
  Exchange exchange({10, 20}, {PageStatus::ok, PageStatus::stale});
  exchange.stream[sizeof(FrameHeader) + offsetof(PagesHead, following_bytes)] ^= std::byte{1};
  AnswerReader reader;
  reader.expect(kRequest, exchange.ops);
  EXPECT_NE(exchange.play(reader, [] { return 1000; }), nullptr);
  EXPECT_TRUE(is_painted(exchange.memory.data(), exchange.memory.size()));
  for (const ReadOp& op : exchange.ops) EXPECT_EQ(op.status, PageStatus::pending);
}

TEST(AnswerReader, AnyFlippedBitOfThePreambleIsNoticed) {
  const std::vector<uint32_t> lengths = {100, 200, 300};
  const std::vector<PageStatus> statuses = {PageStatus::ok, PageStatus::stale, PageStatus::ok};
  for (size_t bit = 0; bit < preamble_bytes(3) * 8; ++bit) {
    Exchange exchange(lengths, statuses);
    exchange.stream[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    AnswerReader reader;
    reader.expect(kRequest, exchange.ops);
    const char* wrong = exchange.play(reader, [] { return 1000; });
    EXPECT_NE(wrong, nullptr) << "bit " << bit;
  }
}

}  // namespace
}  // namespace peercached::tcp
