#include "transfer/tcp/frames.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace peercached::tcp {
namespace {

std::span<const std::byte> body_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(sizeof(FrameHeader));
}

FrameHeader header_of(const std::vector<std::byte>& frame, FrameKind kind) {
  FrameHeader header;
  EXPECT_EQ(parse_header(frame, {kind}, 1 << 20, header), nullptr);
  EXPECT_EQ(header.body_bytes, frame.size() - sizeof(FrameHeader));
  return header;
}

std::vector<PageWanted> some_pages(size_t count, uint32_t length) {
  std::vector<PageWanted> pages;
  for (size_t i = 0; i < count; ++i) pages.push_back({i * 4096, {i, ~i}, i + 1, length, 0});
  return pages;
}

std::vector<Digest> some_digests() {
  std::vector<Digest> digests;
  for (uint64_t i = 0; i < kDigestsPerRequestMax; ++i) digests.push_back({i, ~i});
  return digests;
}

TEST(TransferFrames, AHelloArrivesAsItWasSent) {
  std::vector<std::byte> frame;
  append_hello(frame, {"node-7", 11, 22, {'p', 'r', 'f'}});
  header_of(frame, FrameKind::hello);
  Hello hello;
  ASSERT_EQ(parse_hello(body_of(frame), hello), nullptr);
  EXPECT_EQ(hello.node_id, "node-7");
  EXPECT_EQ(hello.incarnation, 11u);
  EXPECT_EQ(hello.expected, 22u);
  EXPECT_EQ(hello.proof, (std::array<char, kProofBytes>{'p', 'r', 'f'}));
}

TEST(TransferFrames, ARefusalArrivesWithReasonAndText) {
  std::vector<std::byte> frame;
  append_refused(frame, Refusal::wrong_incarnation, "another start");
  header_of(frame, FrameKind::refused);
  HelloReply reply;
  ASSERT_EQ(parse_hello_reply(FrameKind::refused, body_of(frame), reply), nullptr);
  EXPECT_FALSE(reply.accepted);
  EXPECT_EQ(reply.reason, static_cast<uint16_t>(Refusal::wrong_incarnation));
  EXPECT_EQ(reply.text, "another start");
}

TEST(TransferFrames, ARequestArrivesAsItWasSent) {
  std::vector<std::byte> frame;
  const auto sent = some_pages(kPagesPerRequestMax, 4096);
  append_read(frame, 77, sent);
  header_of(frame, FrameKind::read);
  ReadHead head;
  std::vector<PageWanted> pages;
  ASSERT_EQ(parse_read(body_of(frame), head, pages), nullptr);
  EXPECT_EQ(head.request, 77u);
  ASSERT_EQ(pages.size(), sent.size());
  EXPECT_EQ(std::memcmp(pages.data(), sent.data(), sent.size() * sizeof(PageWanted)), 0);
}

TEST(TransferFrames, AHoldAndItsAnswerArriveAsTheyWereSent) {
  std::vector<std::byte> frame;
  const std::vector<Digest> sent = some_digests();
  append_hold(frame, 78, 2500, sent);
  EXPECT_LE(header_of(frame, FrameKind::hold).body_bytes, kRequestBodyBytesMax);
  HoldHead head;
  std::vector<Digest> digests;
  ASSERT_EQ(parse_hold(body_of(frame), head, digests), nullptr);
  EXPECT_EQ(head.request, 78u);
  EXPECT_EQ(head.hold_ms, 2500u);
  EXPECT_EQ(digests, sent);

  frame.clear();
  const std::vector<uint8_t> answer{1, 0, 1};
  append_held(frame, 78, answer);
  EXPECT_EQ(header_of(frame, FrameKind::held).body_bytes, held_body_bytes(3));
  std::vector<uint8_t> held(3);
  ASSERT_EQ(parse_held(body_of(frame), 78, held), nullptr);
  EXPECT_EQ(held, answer);
  EXPECT_NE(parse_held(body_of(frame), 79, held), nullptr);
}

TEST(TransferFrames, ALookupAndItsAnswersArriveAsTheyWereSent) {
  std::vector<std::byte> frame;
  const std::vector<Digest> sent = some_digests();
  append_lookup(frame, 78, 5, sent);
  EXPECT_LE(header_of(frame, FrameKind::lookup).body_bytes, kRequestBodyBytesMax);
  LookupHead head;
  std::vector<Digest> digests;
  ASSERT_EQ(parse_lookup(body_of(frame), head, digests), nullptr);
  EXPECT_EQ(head.request, 78u);
  EXPECT_EQ(head.view_number, 5u);
  EXPECT_EQ(digests, sent);

  RecordRow row{.digest = {1, 2}, .offset = 4096, .generation = 9, .length = 100};
  row.flags = kRecordResident;
  Located answer{.final = true, .holders = {71, 72}, .rows = {row, row}};
  answer.rows[1].holder = 1;
  answer.rows[0].holder = 0;
  frame.clear();
  append_located(frame, 78, answer);
  EXPECT_LE(header_of(frame, FrameKind::located).body_bytes, located_body_bytes_max(1));
  // Several answers merge into one.
  Located found{.final = true, .holders = {}, .rows = {}};
  ASSERT_EQ(parse_located(body_of(frame), 78, found), nullptr);
  answer.final = false;
  frame.clear();
  append_located(frame, 79, answer);
  ASSERT_EQ(parse_located(body_of(frame), 79, found), nullptr);
  EXPECT_FALSE(found.final);
  EXPECT_EQ(found.holders, (std::vector<Incarnation>{71, 72, 71, 72}));
  ASSERT_EQ(found.rows.size(), 4u);
  EXPECT_EQ(found.rows[3].holder, 3);
  EXPECT_EQ(found.rows[3].offset, 4096u);
  EXPECT_NE(parse_located(body_of(frame), 78, found), nullptr) << "of another request";
}

TEST(TransferFrames, APushAndItsAnswerArriveAsTheyWereSent) {
  std::vector<std::byte> frame;
  std::vector<RecordRow> sent(kRowsPerRequestMax);
  for (uint64_t i = 0; i < sent.size(); ++i) {
    sent[i].digest = {i, ~i};
    sent[i].flags = i % 2 == 0 ? kRecordResident : kRecordWithdraw;
  }
  append_push(frame, 78, {.rows = sent, .from = 5, .to = 5 + sent.size()});
  EXPECT_LE(header_of(frame, FrameKind::push).body_bytes, kRequestBodyBytesMax);
  PushHead head;
  std::vector<RecordRow> rows;
  ASSERT_EQ(parse_push(body_of(frame), head, rows), nullptr);
  EXPECT_EQ(head.request, 78u);
  EXPECT_EQ(std::pair(head.from, head.to), std::pair(uint64_t{5}, 5 + sent.size()));
  ASSERT_EQ(rows.size(), sent.size());
  EXPECT_EQ(std::memcmp(rows.data(), sent.data(), sent.size() * sizeof(RecordRow)), 0);

  frame.clear();
  append_pushed(frame, 78, 9);
  header_of(frame, FrameKind::pushed);
  uint64_t position = 0;
  ASSERT_EQ(parse_pushed(body_of(frame), 78, position), nullptr);
  EXPECT_EQ(position, 9u);
  EXPECT_NE(parse_pushed(body_of(frame), 79, position), nullptr) << "of another request";

  const auto wrong = [](size_t at, auto value) {
    const std::vector<RecordRow> two(2);
    std::vector<std::byte> bad;
    append_push(bad, 78, {.rows = two, .from = 5, .to = 7});
    std::memcpy(bad.data() + sizeof(FrameHeader) + at, &value, sizeof value);
    PushHead taken;
    std::vector<RecordRow> changes;
    return parse_push(body_of(bad), taken, changes) != nullptr;
  };
  EXPECT_FALSE(wrong(offsetof(PushHead, from), uint64_t{5}));
  EXPECT_TRUE(wrong(offsetof(PushHead, from), uint64_t{0}));
  EXPECT_TRUE(wrong(offsetof(PushHead, to), uint64_t{4}));
  EXPECT_TRUE(wrong(offsetof(PushHead, reserved), 1));
  for (const uint32_t count : {0u, 1u, 3u, kRowsPerRequestMax + 1, UINT32_MAX})
    EXPECT_TRUE(wrong(offsetof(PushHead, count), count)) << count;
}

TEST(TransferFrames, AFollowAndItsAnswersArriveAsTheyWereSent) {
  const LifeSign sign{7, 8, 9, 1, 0};
  std::vector<std::byte> frame;
  append_follow(frame, 78, {3, 44, 12, 5, 1}, 2000, sign);
  EXPECT_LE(header_of(frame, FrameKind::follow).body_bytes, kRequestBodyBytesMax);
  FollowHead head;
  ASSERT_EQ(parse_follow(body_of(frame), head), nullptr);
  EXPECT_EQ(head.request, 78u);
  const FeedQuestion& question = head.question;
  EXPECT_EQ(question.number, 3u);
  EXPECT_EQ(question.position, 44u);
  EXPECT_EQ(question.lease_view, 12u);
  EXPECT_EQ(std::pair(question.ring, question.scans), std::pair(uint64_t{5}, uint64_t{1}));
  EXPECT_EQ(head.wait_ms, 2000u);
  EXPECT_EQ(head.sign, sign);

  const std::vector<RecordRow> sent(2);
  const Followed parts[] = {{{.rows = sent, .anew = true, .more = true}, {}},
                            {{.rows = sent, .from = 44, .to = 46, .lease_view = 12}, sign}};
  for (const Followed& part : parts) {
    frame.clear();
    append_followed(frame, 78, part);
    EXPECT_LE(header_of(frame, FrameKind::followed).body_bytes, kFollowedBodyBytesMax);
    Followed same;
    std::vector<RecordRow> rows;
    ASSERT_EQ(parse_followed(body_of(frame), 78, same, rows), nullptr);
    EXPECT_EQ(same.rows.size(), 2u);
    EXPECT_EQ(std::pair(same.from, same.to), std::pair(part.from, part.to));
    EXPECT_EQ(std::pair(same.anew, same.more), std::pair(part.anew, part.more));
    EXPECT_EQ(same.lease_view, part.lease_view);
    EXPECT_EQ(same.sign, part.sign);
    EXPECT_NE(parse_followed(body_of(frame), 79, same, rows), nullptr) << "of another request";
  }
}

TEST(TransferFrames, InvalidLookupAnswerIsRefused) {
  const auto wrong = [](size_t at, auto value) {
    Located answer{.final = true, .holders = {71}, .rows = {RecordRow{}}};
    answer.rows[0].holder = 0;
    std::vector<std::byte> frame;
    append_located(frame, 1, answer);
    std::memcpy(frame.data() + sizeof(FrameHeader) + at, &value, sizeof value);
    Located found;
    return parse_located(body_of(frame), 1, found) != nullptr;
  };
  constexpr size_t kRow = sizeof(LocatedHead) + sizeof(Incarnation);
  EXPECT_FALSE(wrong(offsetof(LocatedHead, rows), uint32_t{1}));
  EXPECT_TRUE(wrong(offsetof(LocatedHead, rows), uint32_t{2}));
  EXPECT_TRUE(wrong(offsetof(LocatedHead, rows), UINT32_MAX));
  EXPECT_TRUE(wrong(offsetof(LocatedHead, holders), uint16_t{0}));
  EXPECT_TRUE(wrong(offsetof(LocatedHead, holders), uint16_t{7}));
  EXPECT_TRUE(wrong(offsetof(LocatedHead, final), uint16_t{2}));
  EXPECT_TRUE(wrong(kRow + offsetof(RecordRow, holder), HolderIndex{1}));
  EXPECT_TRUE(wrong(kRow + offsetof(RecordRow, flags), uint8_t{kRecordWithdraw}));
}

TEST(TransferFrames, CountMismatchingTheBytesIsRefused) {
  std::vector<std::byte> frame;
  append_read(frame, 1, some_pages(3, 10));
  for (uint32_t count : {0u, 2u, 4u, 257u, 0x7fffffffu, 0xffffffffu}) {
    std::memcpy(frame.data() + sizeof(FrameHeader) + offsetof(ReadHead, count), &count, 4);
    ReadHead head;
    std::vector<PageWanted> pages;
    EXPECT_NE(parse_read(body_of(frame), head, pages), nullptr) << count;
  }
}

TEST(TransferFrames, AHoldOfTooManyPagesIsRefused) {
  std::vector<std::byte> frame;
  append_hold(frame, 1, 1000, std::vector<Digest>(kDigestsPerRequestMax));
  frame.resize(frame.size() + sizeof(Digest));
  const uint32_t count = kDigestsPerRequestMax + 1;
  std::memcpy(frame.data() + sizeof(FrameHeader) + offsetof(HoldHead, count), &count, 4);
  HoldHead head;
  std::vector<Digest> digests;
  EXPECT_NE(parse_hold(body_of(frame), head, digests), nullptr);
}

TEST(TransferFrames, ReservedBitsAreRefusedInEveryFrame) {
  const auto set_at = [](std::vector<std::byte> frame, size_t offset) {
    frame[sizeof(FrameHeader) + offset + 3] |= std::byte{0x80};
    return frame;
  };
  std::vector<std::byte> hello, refused, read, answer;
  append_hello(hello, {"node", 1, 2, {}});
  append_refused(refused, Refusal::full, "text");
  append_read(read, 1, some_pages(3, 100));
  std::vector<PageStatus> statuses(3);
  append_pages(answer, 1, statuses, 0);

  Hello parsed;
  EXPECT_STREQ(parse_hello(body_of(set_at(hello, offsetof(HelloHead, reserved))), parsed),
               "reserved bits are set in the hello");
  HelloReply reply;
  EXPECT_STREQ(parse_hello_reply(FrameKind::refused,
                                 body_of(set_at(refused, offsetof(RefusedHead, reserved))), reply),
               "reserved bits are set in the refusal");
  ReadHead head;
  std::vector<PageWanted> pages;
  EXPECT_STREQ(parse_read(body_of(set_at(read, offsetof(ReadHead, reserved))), head, pages),
               "reserved bits are set in a read request");
  for (size_t i = 0; i < 3; ++i) {
    const size_t at = sizeof(ReadHead) + i * sizeof(PageWanted) + offsetof(PageWanted, reserved);
    EXPECT_STREQ(parse_read(body_of(set_at(read, at)), head, pages),
                 "reserved bits are set in a page of a request");
  }
  uint64_t following_bytes = 0;
  EXPECT_STREQ(
      parse_pages(set_at(answer, offsetof(PagesHead, reserved)), 1, statuses, following_bytes),
      "reserved bits are set in an answer");
}

TEST(TransferFrames, RequestsBeyondTheBoundsAreRefused) {
  EXPECT_NE(check_wanted({}), nullptr);
  EXPECT_NE(check_wanted(some_pages(kPagesPerRequestMax + 1, 1)), nullptr);
  EXPECT_NE(check_wanted(some_pages(1, 0)), nullptr);
  EXPECT_NE(check_wanted(some_pages(1, kPageBytesMax + 1)), nullptr);
  EXPECT_NE(check_wanted(some_pages(3, 16 << 20)), nullptr);
  EXPECT_EQ(check_wanted(some_pages(2, 16 << 20)), nullptr);
  EXPECT_EQ(check_wanted(some_pages(1, kPageBytesMax)), nullptr) << "one huge page goes alone";
}

TEST(TransferFrames, AnswerToAnotherRequestOrWithBadStatusIsRefused) {
  std::vector<std::byte> frame;
  const std::vector<PageStatus> sent = {PageStatus::ok, PageStatus::stale, PageStatus::ok};
  append_pages(frame, 9, sent, 1234);
  std::vector<PageStatus> statuses(3);
  uint64_t following_bytes = 0;
  ASSERT_EQ(parse_pages(frame, 9, statuses, following_bytes), nullptr);
  EXPECT_EQ(statuses, sent);
  EXPECT_EQ(following_bytes, 1234u);
  EXPECT_NE(parse_pages(frame, 10, statuses, following_bytes), nullptr);
  frame.back() = std::byte{static_cast<uint8_t>(PageStatus::deadline)};
  EXPECT_NE(parse_pages(frame, 9, statuses, following_bytes), nullptr)
      << "a holder knows ok and stale only";
}

TEST(TransferFrames, NoDamagedFrameIsReadBeyondItsEnd) {
  std::vector<std::byte> hello, read;
  append_hello(hello, {"node", 1, 2, {}});
  append_read(read, 1, some_pages(5, 100));
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    for (std::vector<std::byte> frame : {hello, read}) {
      for (unsigned flips = random() % 4; flips != 0; --flips) {
        frame[random() % frame.size()] ^= static_cast<std::byte>(1u << random() % 8);
      }
      frame.resize(random() % (frame.size() + 1));
      frame.shrink_to_fit();  // so that the address sanitizer detects any read beyond the frame
      FrameHeader header;
      Hello parsed_hello;
      HelloReply reply;
      ReadHead head;
      std::vector<PageWanted> pages;
      (void)parse_header(frame, {FrameKind::hello}, 4096, header);
      if (frame.size() < sizeof(FrameHeader)) continue;
      (void)parse_hello(body_of(frame), parsed_hello);
      (void)parse_hello_reply(FrameKind::refused, body_of(frame), reply);
      (void)parse_read(body_of(frame), head, pages);
    }
  }
}

}  // namespace
}  // namespace peercached::tcp
