#include "engine/storage/page_seal.h"

#include <openssl/rand.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>

#include "common/copy.h"

namespace peercached {

namespace {

// The checksum and the cipher take turns on pieces that stay in the cache.
constexpr size_t kTurnBytes = 16 << 10;

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

void require(int rc, const char* what) {
  if (rc != 1) throw std::runtime_error(std::string("OpenSSL cannot ") + what);
}

void update(EVP_CIPHER_CTX* context, std::byte* to, const std::byte* from, size_t bytes) {
  int n = 0;
  require(EVP_CipherUpdate(context, raw(to), &n, raw(from), static_cast<int>(bytes)), "encrypt");
}

// Returns the checksum of `plain`, which is one of the two.
uint64_t crypt(EVP_CIPHER_CTX* context, std::byte* to, const std::byte* from,
               const std::byte* plain, size_t length) {
  RunningCopy sum(nullptr, plain);
  for (size_t at = 0; at < length; at += kTurnBytes) {
    const size_t bytes = std::min(kTurnBytes, length - at);
    update(context, to + at, from + at, bytes);
    sum.advance(at + bytes);
  }
  return sum.finish(length);
}

}  // namespace

PageSeal::PageSeal(std::span<const std::byte> given) : context_(EVP_CIPHER_CTX_new()) {
  static EVP_CIPHER* const cipher = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  if (given.size() < kKeyBytes)
    throw std::invalid_argument("a seal of " + std::to_string(given.size()) + " bytes has no key");
  if (context_ == nullptr) throw std::bad_alloc();
  require(cipher != nullptr, "find AES-256-GCM");
  require(EVP_CipherInit_ex2(context_.get(), cipher, raw(given.data()), nullptr, 1, nullptr),
          "take a key");
  about_.assign(given.begin() + kKeyBytes, given.end());
}

void PageSeal::begin(const ObjectEntry& entry, const std::byte* nonce, bool seals) {
  require(EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, raw(nonce), seals ? 1 : 0, nullptr),
          "take a nonce");
  ObjectEntry page = entry;
  page.offset = 0;
  update(context_.get(), nullptr, about_.data(), about_.size());
  update(context_.get(), nullptr, reinterpret_cast<const std::byte*>(&page), sizeof page);
}

uint64_t PageSeal::seal(const ObjectEntry& entry, const std::byte* from, std::byte* to) {
  require(RAND_bytes(raw(to), kNonceBytes), "make a nonce");
  begin(entry, to, true);
  to += kNonceBytes;
  const uint64_t sum = crypt(context_.get(), to, from, from, entry.length);
  to += entry.length;
  int none = 0;
  require(EVP_CipherFinal_ex(context_.get(), raw(to), &none), "encrypt");
  require(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, to), "make a tag");
  return sum;
}

std::optional<uint64_t> PageSeal::open(const ObjectEntry& entry, const std::byte* from,
                                       std::byte* to) {
  begin(entry, from, false);
  from += kNonceBytes;
  const uint64_t sum = crypt(context_.get(), to, from, to, entry.length);
  auto* tag = const_cast<std::byte*>(from + entry.length);  // only read
  require(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag), "take a tag");
  int none = 0;
  if (EVP_CipherFinal_ex(context_.get(), raw(to) + entry.length, &none) != 1) return std::nullopt;
  return sum;
}

std::span<const std::byte> stored_page(const ObjectEntry& entry, bool sealed, uint64_t base,
                                       std::span<const std::byte> bytes) {
  if (entry.length == 0 || entry.offset < base || entry.offset - base > bytes.size()) return {};
  const auto left = bytes.subspan(entry.offset - base);
  const uint64_t stored = uint64_t{entry.length} + (sealed ? PageSeal::kBytes : 0);
  return stored > left.size() ? std::span<const std::byte>{} : left.first(stored);
}

}  // namespace peercached
