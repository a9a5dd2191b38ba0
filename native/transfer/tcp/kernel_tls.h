// TLS records made or opened by the kernel, after OpenSSL has shaken hands.
//
// It saves a copy at each end: the kernel encrypts out of the pool, and OpenSSL's buffer falls
// away. It needs the kernel's module `tls`. Keys cannot change: most kernels know no key updates.
#pragma once

#include <array>

namespace peercached::tcp {

enum class TlsWay { send, receive };

// Of TLS_AES_128_GCM_SHA256 (RFC 8446, 7.1).
using TrafficSecret = std::array<unsigned char, 32>;

// Gives the kernel the key of one direction of an established connection, from the first record
// under this secret on. False: this kernel has no TLS, and the connection is as it was.
bool give_to_kernel(int fd, TlsWay way, const TrafficSecret& secret);

}  // namespace peercached::tcp
