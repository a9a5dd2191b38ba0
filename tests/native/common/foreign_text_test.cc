#include "common/foreign_text.h"

#include <gtest/gtest.h>

#include "common/notices.h"

namespace peercached {
namespace {

TEST(ForeignText, PresentableTextIsUnchanged) {
  for (const char* text : {"", "node-1", "Käse 乳酪 🧀", "\xc2\xa0", "tab-less"}) {
    EXPECT_TRUE(is_presentable(text)) << text;
    EXPECT_EQ(presentable(text, 100), text);
  }
}

TEST(ForeignText, ControlAndBidiCharactersAreEscaped) {
  EXPECT_EQ(presentable("a\nb", 100), "a\\x0ab");
  EXPECT_EQ(presentable("\x1b[2J", 100), "\\x1b[2J");
  EXPECT_EQ(presentable("\x7f", 100), "\\x7f");
  EXPECT_EQ(presentable("\xc2\x9b", 100), "\\xc2\\x9b") << "C1: CSI in one character";
  EXPECT_EQ(presentable("\xe2\x80\xae", 100), "\\xe2\\x80\\xae") << "U+202E, right to left";
  EXPECT_EQ(presentable("\xe2\x80\xa8", 100), "\\xe2\\x80\\xa8") << "U+2028, line separator";
}

TEST(ForeignText, InvalidUtf8IsMadePresentable) {
  for (const char* text : {"\xff", "\xc3", "\xc3(", "\xe2\x82", "\xed\xa0\x80", "\xc0\xaf",
                           "\xf4\x90\x80\x80", "\x80"}) {
    EXPECT_FALSE(is_presentable(text));
    EXPECT_TRUE(is_presentable(presentable(text, 100))) << presentable(text, 100);
  }
}

TEST(ForeignText, ACutIsBetweenCharacters) {
  EXPECT_EQ(presentable("ab\xc3\xa4", 3), "ab");
  EXPECT_EQ(presentable("ab\xc3\xa4", 4), "ab\xc3\xa4");
  EXPECT_EQ(presentable("ab\n", 5), "ab") << "no half of an escape";
}

TEST(ForeignText, NoticeIsAlwaysPresentableAndBounded) {
  Notices notices;
  notices.say("kind", "node '\xff\n' " + std::string(1000, '\xc3'));
  const auto told = notices.take();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(is_presentable(told[0]));
  EXPECT_LE(told[0].size(), Notices::kSentenceBytesMax);
}

}  // namespace
}  // namespace peercached
