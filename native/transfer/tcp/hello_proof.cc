#include "transfer/tcp/hello_proof.h"

#include <sodium.h>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace peercached::tcp {
namespace {

constexpr std::string_view kPurpose = "peercached hello";

void update(crypto_generichash_state& state, const void* from, size_t bytes) {
  crypto_generichash_update(&state, static_cast<const unsigned char*>(from), bytes);
}

}  // namespace

Challenge fresh_challenge() {
  static const int initialised = sodium_init();
  (void)initialised;
  Challenge challenge;
  randombytes_buf(challenge.data(), challenge.size());
  return challenge;
}

std::array<char, kProofBytes> prove(const std::string& token, const Challenge& challenge,
                                    const Hello& hello) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, reinterpret_cast<const unsigned char*>(token.data()),
                          token.size(), kProofBytes);
  update(state, kPurpose.data(), kPurpose.size());
  update(state, challenge.data(), challenge.size());
  update(state, &hello.incarnation, sizeof hello.incarnation);
  update(state, &hello.expected, sizeof hello.expected);
  update(state, hello.node_id.data(), hello.node_id.size());  // variable length: must be last
  std::array<char, kProofBytes> proof;
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(proof.data()), proof.size());
  return proof;
}

bool is_proven(const std::string& token, const Challenge& challenge, const Hello& hello) {
  if (token.size() != kTokenBytes) return false;
  const auto right = prove(token, challenge, hello);
  return sodium_memcmp(right.data(), hello.proof.data(), right.size()) == 0;
}

}  // namespace peercached::tcp
