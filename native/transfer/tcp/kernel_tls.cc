#include "transfer/tcp/kernel_tls.h"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "common/clock.h"

// Older headers than the kernel that runs us.
#ifndef TCP_ULP
#define TCP_ULP 31
#endif
#ifndef SOL_TLS
#define SOL_TLS 282
#endif
#ifndef TLS_1_3_VERSION
#define TLS_1_3_VERSION 0x0304
#endif

namespace peercached::tcp {
namespace {

using Block = std::array<unsigned char, EVP_MAX_MD_SIZE>;

// HKDF-Expand-Label with an empty context (RFC 8446, 7.1), for at most one SHA-256 (RFC 5869, 2.3).
bool expand(const TrafficSecret& secret, std::string_view label, unsigned char bytes, Block& out) {
  std::string info{'\0', static_cast<char>(bytes), static_cast<char>(6 + label.size())};
  info += "tls13 ";
  info += label;
  info += {'\0', '\1'};
  const auto* message = reinterpret_cast<const unsigned char*>(info.data());
  return HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), message, info.size(),
              out.data(), nullptr) != nullptr;
}

// To ask for an absent module may run modprobe, so not with each connection.
constexpr std::chrono::minutes kAskAgain{1};

bool take_tls(int fd) {
  static std::atomic<TimePoint> ask_at{TimePoint::min()};
  if (Clock::now() < ask_at.load(std::memory_order_relaxed)) return false;
  if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0) return true;
  if (errno == ENOENT) ask_at.store(Clock::now() + kAskAgain, std::memory_order_relaxed);
  return false;
}

}  // namespace

bool give_to_kernel(int fd, TlsWay way, const TrafficSecret& secret) {
  tls12_crypto_info_aes_gcm_128 keys{};
  keys.info.version = TLS_1_3_VERSION;
  keys.info.cipher_type = TLS_CIPHER_AES_GCM_128;
  Block key{}, iv{};
  bool given = expand(secret, "key", sizeof keys.key, key) &&
               expand(secret, "iv", sizeof keys.salt + sizeof keys.iv, iv);
  // TLS 1.3 has one IV of 12 bytes. The kernel wants it in the two parts of TLS 1.2.
  std::copy_n(key.begin(), sizeof keys.key, keys.key);
  std::copy_n(iv.begin(), sizeof keys.salt, keys.salt);
  std::copy_n(iv.begin() + sizeof keys.salt, sizeof keys.iv, keys.iv);
  const int option = way == TlsWay::send ? TLS_TX : TLS_RX;
  given = given && take_tls(fd) && setsockopt(fd, SOL_TLS, option, &keys, sizeof keys) == 0;
  OPENSSL_cleanse(&keys, sizeof keys);
  OPENSSL_cleanse(&key, sizeof key);
  OPENSSL_cleanse(&iv, sizeof iv);
  return given;
}

}  // namespace peercached::tcp
