// TLS 1.3 over one connection to a data port (docs/protocol.md, "TCP transfer").
//
// Both ends know the token of their daemons' handshake, which went over TLS with certificates. Here
// it is the pre-shared key (RFC 8446, 2.2), beside a key exchange of each connection: certificates
// are looked at in one place only, and who learns a token later cannot read what was recorded.
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

namespace peercached::tcp {

class Seal {
 public:
  using TokenOf = std::function<std::string(const std::string& node_id, Incarnation)>;

  // Before the first byte; the descriptor outlives the seal. std::bad_alloc without memory.
  static std::unique_ptr<Seal> of_reader(int fd, const Hello& who, std::string token);
  static std::unique_ptr<Seal> of_holder(int fd, const TokenOf& token_of);
  Seal(const Seal&) = delete;
  Seal& operator=(const Seal&) = delete;

  // Never block. False: errno is EAGAIN (there is more to come from the other end) or another.
  // send() and receive() do it by themselves.
  bool shake();
  // Bytes; 0: the end of what comes; -1 and errno: EAGAIN, EFAULT (`places` are gone), or EPROTO
  // (see trouble()). After EAGAIN the same bytes come first in the next send().
  ssize_t send(std::span<const iovec> pieces);
  ssize_t receive(std::span<const iovec> places);
  // This end's key, which send() does in time. False: not now; what has been begun goes on with the
  // next send().
  bool change_key();
  // Something has come already that poll() does not tell of.
  bool has_more() const { return over_ || (!starved_ && SSL_has_pending(ssl_.get()) == 1); }

  const std::string& trouble() const { return trouble_; }
  // It broke because the two ends know no token in common, most likely.
  bool token_unknown() const { return token_unknown_; }
  // The other end has not got the token.
  bool is_stranger() const { return stranger_; }

 private:
  friend struct SealContexts;
  // As the protocol has them at most.
  static constexpr size_t kRecordBytes = 16384;
  // AES-GCM keeps its promises for 2^24.5 records under one key (RFC 8446, 5.5).
  static constexpr uint64_t kRecordsPerKey = 1 << 22;
  // That the other end may make without sending anything between them.
  static constexpr unsigned kKeyChangesMax = 16;

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  Seal(SSL_CTX* context, int fd, std::string token);
  SSL_SESSION* session() const;
  bool fail(int rc);
  std::span<const std::byte> next_record(std::span<const iovec> pieces, size_t skip);
  bool send_record(std::span<const std::byte> plain);

  const int fd_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string identity_;  // of the reader
  std::string token_;
  const TokenOf* token_of_ = nullptr;  // of the holder, until it is shaken
  std::string trouble_;
  bool token_unknown_ = false;
  bool stranger_ = false;
  bool dry_ = false;         // the last look into the socket found nothing
  bool starved_ = false;     // receive() has to wait for the socket
  std::optional<int> over_;  // nothing more can be received: errno, or 0 for the end
  uint64_t records_ = 0;
  unsigned key_changes_ = 0;  // of the other end, since it sent something else
  std::vector<std::byte> record_;
};

}  // namespace peercached::tcp
