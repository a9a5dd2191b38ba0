// How a reader proves at the data port that it knows the token of its handshake (docs/protocol.md).
//
// The token itself never travels there. The holder sends a nonce, and the reader answers with a
// hash of it, keyed with the token. So an overheard hello opens no other connection.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "transfer/tcp/frames.h"

namespace peercached::tcp {

// A random nonce, never the same twice.
Challenge fresh_challenge();

// BLAKE2b, keyed with the token, of the challenge and all fields of the hello.
std::array<char, kProofBytes> prove(const std::string& token, const Challenge& challenge,
                                    const Hello& hello);

// Compares the hello's proof with prove(), in constant time. False for an empty token.
bool is_proven(const std::string& token, const Challenge& challenge, const Hello& hello);

}  // namespace peercached::tcp
