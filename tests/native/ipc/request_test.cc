// The request parser alone: it reads the columns, and trusts no offset outside the body.
#include "ipc/request.h"

#include <gtest/gtest.h>

#include "raw_worker.h"

namespace peercached::ipc {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

RequestHeader header_of(Op op, const std::string& body, uint32_t count, uint16_t flags = 0) {
  RequestHeader header;
  header.op = static_cast<uint16_t>(op);
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.count = count;
  header.flags = flags;
  return header;
}

TEST(Request, ColumnsComeBackAsTheyWerePacked) {
  const std::string body =
      pack_pages({{"one", 7, 1ull << 40, 4096}, {"three", 8, 5, 6}}, "the parent");
  const PageColumns pages = parse_pages(header_of(Op::set, body, 2, kFlagParent), bytes_of(body));
  EXPECT_EQ(pages.count, 2u);
  EXPECT_EQ(pages.key_bytes[1], 5u);
  EXPECT_EQ(pages.regions[0], 7u);
  EXPECT_EQ(pages.offsets[0], 1ull << 40);
  EXPECT_EQ(pages.lengths[1], 6u);
  EXPECT_EQ(pages.parent_key, "the parent");
  EXPECT_EQ(pages.keys, "onethree");
}

TEST(Request, NamesFollowTheKeysOfASet) {
  std::string body = pack_pages({{"one", 7, 0, 64}, {"two", 7, 64, 64}});
  body += std::string("ab") + "\x02" + "\xff" + std::string("\x10\0\0\0", 4);
  const RequestHeader header = header_of(Op::set, body, 2, kFlagNames);
  EXPECT_NO_THROW(check_header(header));
  EXPECT_EQ(features_of(header), kFeatureNames);
  const PageColumns pages = parse_pages(header, bytes_of(body));
  EXPECT_EQ(pages.keys, "onetwo");
  EXPECT_EQ(pages.name_kinds[1], 0xff);
  EXPECT_EQ(pages.names.size(), 2u);
  EXPECT_EQ(pages.block_tokens, 16u);
  EXPECT_THROW(check_header(header_of(Op::get, body, 2, kFlagNames)), RequestError);
  body[body.size() - 6] = 33;  // no kind of names
  EXPECT_THROW(parse_pages(header, bytes_of(body)), RequestError);
  body[body.size() - 6] = 32;  // more bytes than the body has
  body.resize(8);
  EXPECT_THROW(parse_pages(header_of(Op::set, body, 2, kFlagNames), bytes_of(body)), RequestError);
}

TEST(Request, KeysAloneHaveNoMemoryColumns) {
  const std::string body = pack_keys({"a", "bc"});
  const PageColumns pages = parse_pages(header_of(Op::exists, body, 2), bytes_of(body));
  EXPECT_FALSE(pages.has_memory);
  EXPECT_EQ(pages.keys, "abc");
  EXPECT_EQ(pages.parent_key, "");
}

TEST(Request, NewsOfForecastsAreTheEndOfExists) {
  std::string body = pack_keys({"a", "bc"});
  append(body, uint32_t{20});  // ms to wait
  append(body, uint32_t{2});   // keys
  append(body, ForecastNews{3, 4, 5'000'000'000, 6});
  const RequestHeader header = header_of(Op::exists, body, 2, kFlagWait | kFlagForecast);
  EXPECT_NO_THROW(check_header(header));
  EXPECT_EQ(features_of(header), uint32_t{kFeatureWait | kFeatureForecast});
  const PageColumns pages = parse_pages(header, bytes_of(body));
  EXPECT_EQ(pages.wait_ms, 20u);
  EXPECT_EQ(pages.news.given_up_pages, 4u);
  EXPECT_EQ(pages.news.cut_us, 5'000'000'000u);
  EXPECT_EQ(pages.keys, "abc");
  const std::string none = pack_keys({});
  EXPECT_THROW(parse_pages(header_of(Op::exists, none, 0, kFlagForecast), bytes_of(none)),
               RequestError);
  EXPECT_THROW(check_header(header_of(Op::get, body, 2, kFlagForecast)), RequestError);
}

TEST(Request, HoldTimeAndPageFollowTheKeysOfExists) {
  std::string body = pack_keys({"a", "bc"});
  const uint32_t hold_ms = 700, page = 64 | 160 << 16;
  body.append(reinterpret_cast<const char*>(&hold_ms), 4);
  body.append(reinterpret_cast<const char*>(&page), 4);
  const RequestHeader header = header_of(Op::exists, body, 2, kFlagHold | kFlagPage);
  EXPECT_NO_THROW(check_header(header));
  const PageColumns pages = parse_pages(header, bytes_of(body));
  EXPECT_EQ(pages.hold_ms, 700u);
  EXPECT_EQ(pages.page_tokens, 64u);
  EXPECT_EQ(pages.page_keys, 160u);
  EXPECT_EQ(pages.keys, "abc");
  EXPECT_THROW(check_header(header_of(Op::get, body, 2, kFlagPage)), RequestError);
  EXPECT_THROW(parse_pages(header_of(Op::exists, "xy", 0, kFlagPage), bytes_of("xy")),
               RequestError);
}

TEST(Request, TimeOfAPinFollowsItsKeysAndIsCutToTheLongestPin) {
  for (const auto& [asked_ms, given_ms] :
       {std::pair{700u, 700u}, {0u, 0u}, {UINT32_MAX, kPinMsMax}}) {
    std::string body = pack_keys({"a", "bc"});
    body.append(reinterpret_cast<const char*>(&asked_ms), 4);
    const RequestHeader header = header_of(Op::pin, body, 2, kFlagPrefix | kFlagHere);
    EXPECT_NO_THROW(check_header(header));
    const PageColumns pages = parse_pages(header, bytes_of(body));
    EXPECT_EQ(pages.pin_ms, given_ms);
    EXPECT_EQ(pages.keys, "abc");
  }
  EXPECT_THROW(check_header(header_of(Op::get, "", 0, kFlagHere)), RequestError);
  EXPECT_THROW(parse_pages(header_of(Op::pin, "xy", 0), bytes_of("xy")), RequestError);
}

TEST(Request, EnvelopeOfHintsFollowsItsKeysAndStaysInsideTheBody) {
  const auto sized = [](uint32_t size) {
    return std::string(reinterpret_cast<const char*>(&size), sizeof size);
  };
  const std::string keys = sized(1) + sized(2) + "abb", envelope = "{}";
  const std::string body = keys + envelope + sized(2);
  const RequestHeader header = header_of(Op::hint, body, 2);
  check_header(header);
  EXPECT_EQ(features_of(header), kFeatureHint);
  const PageColumns pages = parse_pages(header, bytes_of(body));
  EXPECT_EQ(pages.envelope, "{}");
  EXPECT_EQ(pages.keys, "abb");
  for (const uint32_t size : {0u, 1u, 3u, 14u, kEnvelopeBytesMax + 1, UINT32_MAX}) {
    const std::string wrong = keys + envelope + sized(size);
    EXPECT_THROW(parse_pages(header_of(Op::hint, wrong, 2), bytes_of(wrong)), RequestError) << size;
  }
  const std::string alone = envelope + sized(2);
  EXPECT_EQ(parse_pages(header_of(Op::hint, alone, 0), bytes_of(alone)).envelope, "{}");
  EXPECT_THROW(check_header(header_of(Op::hint, body, 2, kFlagParent)), RequestError);
}

TEST(Request, LayoutsHaveOneRegionForEachOfTheirRows) {
  const auto append = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string body;
  for (const uint32_t bytes : {3u, 5u}) append(body, bytes);
  for (const uint32_t region : {7u, 8u, 9u}) append(body, region);
  for (const uint64_t number : {40ull, 41ull}) append(body, number);
  for (const uint32_t length : {300u, 300u}) append(body, length);
  body += "onethree";
  for (uint32_t i = 0; i < 3; ++i) append(body, Rows{i, 10, 0, 100, 1, i * 100, 0});
  const std::string rows = body;
  for (const uint32_t count : {2u, 1u, 2u}) append(body, count);
  const RequestHeader header = header_of(Op::get, body, 2, kFlagLayout);
  EXPECT_NO_THROW(check_header(header));
  const PageColumns pages = parse_pages(header, bytes_of(body));
  EXPECT_EQ(pages.layouts, 2u);
  EXPECT_EQ(pages.layout_rows, 3u);
  EXPECT_EQ(pages.rows_of_layout[0], 2u);
  EXPECT_EQ(pages.regions[2], 9u);
  EXPECT_EQ(pages.offsets[1], 41u);
  EXPECT_EQ(pages.lengths[1], 300u);
  EXPECT_EQ(pages.rows[2].page_at, 200u);
  EXPECT_EQ(pages.keys, "onethree");
  EXPECT_EQ(features_of(header), uint32_t{kFeatureDevice});
  const std::vector<std::vector<uint32_t>> wrong_counts{{0},
                                                        {2, 1},
                                                        {4, 1},
                                                        {3, 0, 2},
                                                        {UINT32_MAX, UINT32_MAX, 2},
                                                        {2, 1, 3},
                                                        {kRowsMax + 1, 1},
                                                        {3, kRowsMax + 1},
                                                        {3, UINT32_MAX}};
  for (const std::vector<uint32_t>& counts : wrong_counts) {
    std::string other = rows;
    for (const uint32_t count : counts) append(other, count);
    EXPECT_THROW(parse_pages(header_of(Op::get, other, 2, kFlagLayout), bytes_of(other)),
                 RequestError)
        << ::testing::PrintToString(counts);
  }
  body[rows.size() - 1] = 1;  // the reserved field
  EXPECT_THROW(parse_pages(header, bytes_of(body)), RequestError);
  EXPECT_NO_THROW(check_header(header_of(Op::get, body, 2, kFlagLayout | kFlagStages)));
  EXPECT_THROW(check_header(header_of(Op::get, body, 2, kFlagStages)), RequestError);
  EXPECT_THROW(check_header(header_of(Op::set, body, 2, kFlagLayout | kFlagStages)), RequestError);
  EXPECT_THROW(check_header(header_of(Op::exists, body, 2, kFlagLayout)), RequestError);
}

TEST(Request, EveryTruncationAndExtensionOfABodyIsRefused) {
  const std::string body = pack_pages({{"one", 1, 2, 3}, {"three", 4, 5, 6}}, "parent");
  for (size_t length = 0; length <= body.size() + 8; ++length) {
    if (length == body.size()) continue;
    std::string other = body.substr(0, length);
    other.resize(length, 'x');
    EXPECT_THROW(parse_pages(header_of(Op::get, other, 2, kFlagParent), bytes_of(other)),
                 RequestError)
        << length << " bytes of " << body.size();
  }
}

TEST(Request, AGetMayEndWithTheSpanOfItsCaller) {
  std::string body = pack_pages({{"one", 1, 2, 3}}, "parent");
  const std::string plain = body;
  for (int i = 1; i <= 24; ++i) body.push_back(static_cast<char>(i));
  const uint16_t flags = kFlagParent | kFlagSpan;
  const PageColumns pages = parse_pages(header_of(Op::get, body, 1, flags), bytes_of(body));
  ASSERT_TRUE(pages.caller);
  EXPECT_EQ(pages.caller->trace_id[0], 1);
  EXPECT_EQ(pages.caller->span_id[7], 24);
  EXPECT_EQ(pages.keys, "one");
  EXPECT_FALSE(
      parse_pages(header_of(Op::get, plain, 1, kFlagParent), bytes_of(plain)).caller.has_value());
  EXPECT_THROW(parse_pages(header_of(Op::get, plain, 1, flags), bytes_of(plain)), RequestError);
  EXPECT_THROW(parse_pages(header_of(Op::get, "short", 1, kFlagSpan), bytes_of("short")),
               RequestError);
  for (const auto& [at, size] : {std::pair<size_t, size_t>{24, 16}, {8, 8}}) {
    std::string zero = body;
    zero.replace(zero.size() - at, size, size, 0);
    EXPECT_THROW(parse_pages(header_of(Op::get, zero, 1, flags), bytes_of(zero)), RequestError);
  }
  EXPECT_NO_THROW(check_header(header_of(Op::get, body, 1, flags)));
  EXPECT_THROW(check_header(header_of(Op::set, body, 1, flags)), RequestError);
}

TEST(Request, TheTimeOfAnEarlierCallIsOfACall) {
  RequestHeader header = header_of(Op::ping, "", 0);
  header.took = UINT32_MAX;
  EXPECT_NO_THROW(check_header(header));
  EXPECT_EQ(took_op(header), TookOp::exists);
  header.took = 4;
  EXPECT_THROW(check_header(header), RequestError);
}

TEST(Request, OnlyPageRequestsAreBoundedByPagesMax) {
  EXPECT_THROW(check_header(header_of(Op::get, "", kPagesMax + 1)), RequestError);
  EXPECT_NO_THROW(check_header(header_of(Op::unregister_region, "", UINT32_MAX)))
      << "an id; a daemon gives out any number of these";
  EXPECT_THROW(check_header(header_of(Op::ping, "", 1)), RequestError);
}

TEST(Request, EveryTruncationOfAHelloIsRefused) {
  HelloHead head;
  head.protocol_version = kProtocolVersion;
  head.namespace_bytes = 2;
  head.name_bytes = 3;
  std::string body;
  append(body, head);
  body += "nsabc";
  EXPECT_EQ(parse_hello(bytes_of(body)).name, "abc");
  for (size_t length = 0; length < body.size(); ++length) {
    const std::string shorter = body.substr(0, length);
    EXPECT_THROW(parse_hello(bytes_of(shorter)), RequestError) << length;
  }
}

TEST(Request, AnEmptyBatchIsFine) {
  EXPECT_EQ(parse_pages(header_of(Op::get, "", 0), {}).count, 0u);
}

}  // namespace
}  // namespace peercached::ipc
