// Seals of pages in the object store.

#include "engine/storage/page_seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "common/copy.h"

namespace peercached {
namespace {

using SealBytes = std::vector<std::byte>;

// A key of equal bytes, and a text about a namespace.
SealBytes seal_with(int key, const char* about) {
  SealBytes given(PageSeal::kKeyBytes, static_cast<std::byte>(key));
  for (const char* at = about; *at != 0; ++at) given.push_back(static_cast<std::byte>(*at));
  return given;
}

SealBytes plain_page(size_t bytes, int seed) {
  SealBytes page(bytes);
  for (size_t i = 0; i < bytes; ++i) page[i] = static_cast<std::byte>(i * i + i / 7 + seed);
  return page;
}

ObjectEntry entry_of(const SealBytes& page, uint64_t number) {
  return {{number, 7}, checksum(page.data(), page.size()), 128, static_cast<uint32_t>(page.size())};
}

SealBytes sealed_page(const SealBytes& given, const ObjectEntry& entry, const SealBytes& page) {
  SealBytes sealed(page.size() + PageSeal::kBytes);
  EXPECT_EQ(PageSeal(given).seal(entry, page.data(), sealed.data()), entry.checksum);
  return sealed;
}

bool opens(const SealBytes& given, const ObjectEntry& entry, const SealBytes& sealed) {
  SealBytes page(entry.length);
  return PageSeal(given).open(entry, sealed.data(), page.data()).has_value();
}

TEST(PageSeal, PageOfAnyLengthComesBackWithItsChecksum) {
  const SealBytes given = seal_with(1, "object");
  PageSeal seal(given);
  for (const size_t bytes : {1, 15, 16, 17, 1024, 16'383, 16'384, 16'385, 70'001}) {
    const SealBytes page = plain_page(bytes, 3);
    const ObjectEntry entry = entry_of(page, 1);
    SealBytes sealed(bytes + PageSeal::kBytes + 8, std::byte{0x5a}), back(bytes + 8);
    EXPECT_EQ(seal.seal(entry, page.data(), sealed.data()), entry.checksum);
    EXPECT_EQ(seal.open(entry, sealed.data(), back.data()), entry.checksum);
    EXPECT_TRUE(std::equal(page.begin(), page.end(), back.begin()));
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(sealed[bytes + PageSeal::kBytes + i], std::byte{0x5a}) << "behind its end";
      EXPECT_EQ(back[bytes + i], std::byte{0}) << "behind its end";
    }
  }
}

TEST(PageSeal, TwoSealsOfAPageShareNoByteRangeOfTheirs) {
  const SealBytes given = seal_with(1, "object"), page(4096, std::byte{0});
  const ObjectEntry entry = entry_of(page, 1);
  const SealBytes one = sealed_page(given, entry, page), two = sealed_page(given, entry, page);
  for (size_t at = 0; at + 16 <= one.size(); at += 16) {
    const auto begin = one.begin() + static_cast<ptrdiff_t>(at);
    EXPECT_EQ(std::search(two.begin(), two.end(), begin, begin + 16), two.end());
  }
}

TEST(PageSeal, OtherKeyNamespaceOrPageDoesNotOpenIt) {
  const SealBytes given = seal_with(1, "object"), page = plain_page(5000, 1);
  const ObjectEntry entry = entry_of(page, 1);
  const SealBytes sealed = sealed_page(given, entry, page);
  EXPECT_TRUE(opens(given, entry, sealed));
  EXPECT_FALSE(opens(seal_with(2, "object"), entry, sealed)) << "key";
  EXPECT_FALSE(opens(seal_with(1, "objecu"), entry, sealed)) << "namespace";
  EXPECT_FALSE(opens(seal_with(1, "object "), entry, sealed)) << "namespace";
  for (ObjectEntry other : {ObjectEntry{{2, 7}, entry.checksum, 128, 5000},
                            ObjectEntry{{1, 7}, entry.checksum + 1, 128, 5000},
                            ObjectEntry{{1, 7}, entry.checksum, 128, 4999}})
    EXPECT_FALSE(opens(given, other, sealed));
  const ObjectEntry moved{entry.digest, entry.checksum, 192, 5000};
  EXPECT_TRUE(opens(given, moved, sealed)) << "a compaction moves it";
}

TEST(PageSeal, PageInThePlaceOfAnotherDoesNotOpen) {
  const SealBytes given = seal_with(1, "object");
  const SealBytes pages[] = {plain_page(300, 1), plain_page(300, 2)};
  const ObjectEntry entries[] = {entry_of(pages[0], 1), entry_of(pages[1], 2)};
  EXPECT_FALSE(opens(given, entries[0], sealed_page(given, entries[1], pages[1])));
  EXPECT_FALSE(opens(given, entries[1], sealed_page(given, entries[0], pages[0])));
}

TEST(PageSeal, AnyChangedByteIsNoticedAndSoIsACutPage) {
  const SealBytes given = seal_with(1, "object"), page = plain_page(200, 1);
  const ObjectEntry entry = entry_of(page, 1);
  SealBytes sealed = sealed_page(given, entry, page);
  for (std::byte& changed : sealed) {
    changed ^= std::byte{0x10};
    EXPECT_FALSE(opens(given, entry, sealed));
    changed ^= std::byte{0x10};
  }
  EXPECT_TRUE(opens(given, entry, sealed));
  std::fill(sealed.end() - PageSeal::kTagBytes / 2, sealed.end(), std::byte{0});
  EXPECT_FALSE(opens(given, entry, sealed)) << "the end is cut off";
}

TEST(PageSeal, SealWithoutAKeyIsRefused) {
  EXPECT_THROW(PageSeal(SealBytes(PageSeal::kKeyBytes - 1)), std::invalid_argument);
}

// An object may be cut anywhere, and an index may say anything.
TEST(StoredPage, IsThereWithAllItsBytesOrNotAtAll) {
  const SealBytes range(128 + PageSeal::kBytes);
  const auto bytes_of = [&](uint32_t offset, uint32_t length, bool sealed) {
    return stored_page({{1, 2}, 0, offset, length}, sealed, 1000, range).size();
  };
  EXPECT_EQ(bytes_of(1000, 128, true), range.size());
  EXPECT_EQ(bytes_of(1000, 128 + PageSeal::kBytes, false), range.size());
  EXPECT_EQ(bytes_of(1000, 129, true), 0u) << "its tag is cut";
  EXPECT_EQ(bytes_of(1001, 128, true), 0u) << "its tag is cut";
  EXPECT_EQ(bytes_of(1001, 128, false), 128u);
  EXPECT_EQ(bytes_of(999, 1, false), 0u) << "before the range";
  EXPECT_EQ(bytes_of(1000 + static_cast<uint32_t>(range.size()), 1, false), 0u) << "behind it";
  EXPECT_EQ(bytes_of(UINT32_MAX, UINT32_MAX, true), 0u);
  EXPECT_EQ(bytes_of(1000, UINT32_MAX, true), 0u);
  EXPECT_EQ(bytes_of(1000, 0, true), 0u) << "no page is empty";
}

}  // namespace
}  // namespace peercached
