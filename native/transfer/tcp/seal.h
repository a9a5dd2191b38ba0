// TLS 1.3 over one connection to a data port (docs/protocol.md, "TCP transfer").
//
// Both ends know the token of their daemons' handshake, which used TLS with certificates. Here the
// token is the pre-shared key (RFC 8446, 2.2), combined with a key exchange per connection. So only
// the handshake checks certificates, and a token that leaks later does not open recorded traffic.
//
// After the handshake, the kernel makes the holder's records where it can, and opens them at the
// reader (kernel_tls.h). Requests are small, so they always go through OpenSSL.
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transfer/tcp/frames.h"
#include "transfer/tcp/kernel_tls.h"

namespace peercached::tcp {

class Seal {
 public:
  using TokenOf = std::function<std::string(const std::string& node_id, Incarnation)>;

  struct Policy {
    bool kernel_sends = true, kernel_receives = true;  // where it can
    // Then a reader opens a new connection, because the holder's kernel cannot change its key. Well
    // below kRecordsPerKey, so that a holder with OpenSSL does not change it either.
    uint64_t received_records_max = 1 << 21;
  };
  // Of all seals that are made from now on. For tests and benches, before their threads start.
  static Policy policy;

  // Call before the first byte. The descriptor must outlive the seal. Throws std::bad_alloc.
  static std::unique_ptr<Seal> of_reader(int fd, const Hello& who, std::string token);
  static std::unique_ptr<Seal> of_holder(int fd, const TokenOf& token_of);
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;
  ~Seal();

  // Continues the TLS handshake; send() and receive() do so by themselves. Never blocks. False: see
  // errno; EAGAIN means wait for the other end.
  bool shake();
  // Never block. They return a number of bytes, 0 at the end of the connection, or -1 with errno.
  // EAGAIN: repeat send() with the same bytes first. EFAULT: the memory of `places` is gone.
  // EPROTO: see trouble().
  ssize_t send(std::span<const iovec> pieces);
  ssize_t receive(std::span<const iovec> places);
  // Changes the key of this end; send() calls it in time. False: not possible now. The next send()
  // completes a change that has begun.
  bool change_key();
  // Data has arrived that poll() does not report.
  bool has_more() const { return over_ || (!starved_ && SSL_has_pending(ssl_.get()) == 1); }
  // Reader: the holder's key is used up, see Policy.
  bool is_worn() const { return received_records_ >= policy_.received_records_max; }
  // Holder: it must not begin another answer, because its kernel cannot change the key.
  bool is_spent() const { return in_kernel_ && !is_reader() && records_ >= kRecordsPerKernelKey; }
  // The kernel makes the records of this holder, or opens them at this reader.
  bool is_in_kernel() const { return in_kernel_; }

  const std::string& trouble() const { return trouble_; }
  // The connection broke, most likely because the two ends share no token.
  bool token_unknown() const { return token_unknown_; }
  // The other end has not proven that it knows the token.
  bool is_stranger() const { return stranger_; }

 private:
  friend struct SealContexts;
  // The largest record that TLS allows.
  static constexpr size_t kRecordBytes = 16384;
  // AES-GCM is safe for 2^24.5 records under one key (RFC 8446, 5.5).
  static constexpr uint64_t kRecordsPerKey = 1 << 22;
  // For a holder, if the reader goes on at Policy::received_records_max. One more answer fits.
  static constexpr uint64_t kRecordsPerKernelKey = 1 << 24;
  // Limit of the other end's key changes with no data between them.
  static constexpr unsigned kKeyChangesMax = 16;

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  Seal(SSL_CTX* context, int fd, std::string token);
  SSL_SESSION* session() const;
  bool is_reader() const { return token_of_ == nullptr; }
  bool fail(int rc);
  void shaken();
  void await_more(bool nothing_now);
  ssize_t send_by_kernel(std::span<const iovec> pieces);
  ssize_t receive_from_kernel(std::span<const iovec> places);
  std::span<const std::byte> next_record(std::span<const iovec> pieces, size_t skip);
  bool send_record(std::span<const std::byte> plain);

  const Policy policy_ = policy;
  const int fd_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string identity_;  // of the reader
  std::string token_;
  const TokenOf* token_of_ = nullptr;    // the holder's, for the handshake only; null at the reader
  std::optional<TrafficSecret> secret_;  // of the holder's records, during the handshake
  bool shaken_ = false;
  bool in_kernel_ = false;
  int low_water_bytes_ = 1;  // SO_RCVLOWAT
  std::string trouble_;
  bool token_unknown_ = false;
  bool stranger_ = false;
  bool dry_ = false;               // the last read of the socket found nothing
  bool starved_ = false;           // receive() must wait for the socket
  std::optional<int> over_;        // nothing more can be received: errno, or 0 at the end
  uint64_t records_ = 0;           // sent under this key
  uint64_t received_records_ = 0;  // with the kernel an estimate
  unsigned key_changes_ = 0;       // by the other end, since its last data
  std::vector<std::byte> record_;
};

}  // namespace peercached::tcp
