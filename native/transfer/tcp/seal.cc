#include "transfer/tcp/seal.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string_view>

#include "common/fault_guard.h"
#include "transfer/tcp/socket.h"

namespace peercached::tcp {
namespace {

// Fast on every processor with AES instructions. Its hash must be that of the PSK, SHA-256.
constexpr const char* kCipherSuite = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipherId[] = {0x13, 0x01};
// The most that one recv() reads.
constexpr size_t kReadAheadBytes = 64 * 1024;

template <typename T>
T* made(T* object) {
  if (object == nullptr) throw std::bad_alloc();
  return object;
}

std::string identity_of(const Hello& who) {
  std::string identity(sizeof who.incarnation, '\0');
  std::memcpy(identity.data(), &who.incarnation, sizeof who.incarnation);
  return identity + who.node_id;
}

// Copies `bytes` into the places, from offset `skip` on. False: the memory of a place is gone.
bool scatter(std::span<const iovec> places, size_t skip, std::span<const std::byte> bytes) {
  for (const iovec& place : places) {
    if (bytes.empty()) return true;
    if (skip >= place.iov_len) {
      skip -= place.iov_len;
      continue;
    }
    auto* to = static_cast<std::byte*>(place.iov_base) + skip;
    const size_t room = std::min(place.iov_len - skip, bytes.size());
    if (!guarded(to, room, [&] { std::memcpy(to, bytes.data(), room); })) return false;
    bytes = bytes.subspan(room);
    skip = 0;
  }
  return true;
}

}  // namespace

// One context for each role, for the life of the process.
struct SealContexts {
  static Seal& seal_of(const SSL* ssl) { return *static_cast<Seal*>(SSL_get_app_data(ssl)); }

  static int offer(SSL* ssl, const EVP_MD*, const unsigned char** id, size_t* bytes,
                   SSL_SESSION** session) {
    const Seal& seal = seal_of(ssl);
    *id = reinterpret_cast<const unsigned char*>(seal.identity_.data());
    *bytes = seal.identity_.size();
    *session = seal.session();
    return *session != nullptr;
  }

  static int find(SSL* ssl, const unsigned char* id, size_t bytes, SSL_SESSION** session) {
    Seal& seal = seal_of(ssl);
    *session = nullptr;
    seal.stranger_ = true;  // until it has proven that it knows the token
    Incarnation incarnation = 0;
    if (bytes < sizeof incarnation || bytes > sizeof incarnation + kNodeIdBytesMax) return 1;
    std::memcpy(&incarnation, id, sizeof incarnation);
    const std::string node_id(reinterpret_cast<const char*>(id) + sizeof incarnation,
                              bytes - sizeof incarnation);
    seal.token_ = (*seal.token_of_)(node_id, incarnation);
    if (seal.token_.size() == kTokenBytes) *session = seal.session();
    return 1;
  }

  // Replaces OpenSSL's own socket BIO: write() of that one raises SIGPIPE.
  static int write(BIO* bio, const char* from, int bytes) {
    const Seal& seal = *static_cast<Seal*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (seal.in_kernel_ && !seal.is_reader()) {  // an alert; the kernel has the key
      errno = EPROTO;
      return -1;
    }
    ssize_t n;
    do {
      n = ::send(seal.fd_, from, static_cast<size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) BIO_set_retry_write(bio);
    return static_cast<int>(n);
  }

  static int read(BIO* bio, char* to, int bytes) {
    Seal& seal = *static_cast<Seal*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    ssize_t n;
    do {
      n = ::recv(seal.fd_, to, static_cast<size_t>(bytes), MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    seal.dry_ = n < 0 && errno == EAGAIN;
    if (seal.dry_) BIO_set_retry_read(bio);
    if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    return static_cast<int>(n);
  }

  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    return command == BIO_CTRL_FLUSH;
  }

  static void heard(int sent, int, int kind, const void* message, size_t bytes, SSL* ssl, void*) {
    if (sent == 0 && kind == SSL3_RT_HANDSHAKE && bytes != 0 &&
        *static_cast<const unsigned char*>(message) == SSL3_MT_KEY_UPDATE) {
      ++seal_of(ssl).key_changes_;
    }
  }

  // Gets lines "LABEL CLIENT_RANDOM SECRET" in hexadecimal.
  static void learnt(const SSL* ssl, const char* line) {
    Seal& seal = seal_of(ssl);
    const bool wanted = seal.is_reader() ? seal.policy_.kernel_receives : seal.policy_.kernel_sends;
    const std::string_view text(line);
    if (!wanted || !text.starts_with("SERVER_TRAFFIC_SECRET_0 ")) return;
    const char* hex = line + text.rfind(' ') + 1;
    TrafficSecret& secret = seal.secret_.emplace();
    size_t bytes = 0;
    if (OPENSSL_hexstr2buf_ex(secret.data(), secret.size(), &bytes, hex, '\0') != 1 ||
        bytes != secret.size()) {
      seal.secret_.reset();
    }
  }

  static BIO_METHOD* socket() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* one = made(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket"));
      BIO_meth_set_write(one, write);
      BIO_meth_set_read(one, read);
      BIO_meth_set_ctrl(one, control);
      return one;
    }();
    return method;
  }

  static SSL_CTX* make(const SSL_METHOD* method) {
    SSL_CTX* context = made(SSL_CTX_new(method));
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    if (SSL_CTX_set_ciphersuites(context, kCipherSuite) != 1) {
      throw std::runtime_error(std::string("OpenSSL of this system has no ") + kCipherSuite);
    }
    SSL_CTX_set_msg_callback(context, heard);
    SSL_CTX_set_keylog_callback(context, learnt);
    // Accept an end without a TLS alert: frames carry their length, so a truncated one is noticed.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    // One record per call: a peer that sends only key changes must not keep us forever.
    SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
    return context;
  }

  static SSL_CTX* reader() {
    static SSL_CTX* const context = [] {
      SSL_CTX* one = make(TLS_client_method());
      SSL_CTX_set_psk_use_session_callback(one, offer);
      // A holder without the token would have to show a certificate, and this context trusts none.
      SSL_CTX_set_verify(one, SSL_VERIFY_PEER, nullptr);
      return one;
    }();
    return context;
  }

  static SSL_CTX* holder() {
    static SSL_CTX* const context = [] {
      SSL_CTX* one = make(TLS_server_method());
      SSL_CTX_set_psk_find_session_callback(one, find);
      return one;
    }();
    return context;
  }
};

Seal::Seal(SSL_CTX* context, int fd, std::string token)
    : fd_(fd), ssl_(made(SSL_new(context))), token_(std::move(token)), record_(kRecordBytes) {
  SSL_set_app_data(ssl_.get(), this);
  BIO* bio = made(BIO_new(SealContexts::socket()));
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
}

Seal::Policy Seal::policy;

Seal::~Seal() {
  if (secret_) OPENSSL_cleanse(secret_->data(), secret_->size());
}

std::unique_ptr<Seal> Seal::of_reader(int fd, const Hello& who, std::string token) {
  std::unique_ptr<Seal> seal(new Seal(SealContexts::reader(), fd, std::move(token)));
  seal->identity_ = identity_of(who);
  SSL_set_connect_state(seal->ssl_.get());
  return seal;
}

std::unique_ptr<Seal> Seal::of_holder(int fd, const TokenOf& token_of) {
  std::unique_ptr<Seal> seal(new Seal(SealContexts::holder(), fd, {}));
  seal->token_of_ = &token_of;
  SSL_set_accept_state(seal->ssl_.get());
  return seal;
}

SSL_SESSION* Seal::session() const {
  SSL_SESSION* one = SSL_SESSION_new();
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl_.get(), kCipherId);
  const auto* key = reinterpret_cast<const unsigned char*>(token_.data());
  if (one != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(one, key, token_.size()) == 1 &&
      SSL_SESSION_set_cipher(one, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(one, TLS1_3_VERSION) == 1) {
    return one;
  }
  SSL_SESSION_free(one);
  return nullptr;
}

// Sets errno and trouble_ from OpenSSL's error. Always returns false.
bool Seal::fail(int rc) {
  const int system = errno;
  switch (SSL_get_error(ssl_.get(), rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      errno = EAGAIN;
      return false;
    case SSL_ERROR_ZERO_RETURN:
      errno = ECONNRESET;
      return false;
    case SSL_ERROR_SYSCALL:
      errno = system != 0 ? system : ECONNRESET;
      return false;
    default:
      break;
  }
  const char* reason = ERR_reason_error_string(ERR_peek_last_error());
  trouble_ = std::string("TLS: ") + (reason != nullptr ? reason : "it ended the connection");
  token_unknown_ = !shaken_ && (is_reader() || stranger_);
  if (token_unknown_) trouble_ += ": no session token in common: shake hands again";
  errno = EPROTO;
  return false;
}

bool Seal::shake() {
  ERR_clear_error();
  errno = 0;
  const int rc = SSL_do_handshake(ssl_.get());
  if (rc != 1) return fail(rc);
  shaken();
  return true;
}

// Until now OpenSSL has read no byte beyond the records that it has opened. So the kernel can go
// on.
void Seal::shaken() {
  shaken_ = true;
  stranger_ = false;
  if (secret_) {
    in_kernel_ = give_to_kernel(fd_, is_reader() ? TlsWay::receive : TlsWay::send, *secret_);
    OPENSSL_cleanse(secret_->data(), secret_->size());
    secret_.reset();
  }
  if (!in_kernel_ || !is_reader()) SSL_set_read_ahead(ssl_.get(), 1);
}

bool Seal::change_key() {
  if (in_kernel_ && !is_reader()) {
    errno = ENOTSUP;
    return false;
  }
  ERR_clear_error();
  errno = 0;
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return false;
  records_ = 0;
  const int rc = SSL_do_handshake(ssl_.get());
  return rc == 1 || fail(rc);
}

bool Seal::send_record(std::span<const std::byte> plain) {
  if (records_ >= kRecordsPerKey) (void)change_key();
  ERR_clear_error();
  errno = 0;
  size_t taken = 0;
  const int rc = SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &taken);
  if (rc != 1) return fail(rc);
  ++records_;
  return true;
}

// The next record to send, after the first `skip` bytes of the pieces. Small pieces share one.
std::span<const std::byte> Seal::next_record(std::span<const iovec> pieces, size_t skip) {
  size_t have = 0;
  for (const iovec& piece : pieces) {
    const size_t skipped = std::min(skip, piece.iov_len);
    skip -= skipped;
    const auto* from = static_cast<const std::byte*>(piece.iov_base) + skipped;
    const size_t bytes = std::min(piece.iov_len - skipped, kRecordBytes - have);
    if (bytes == kRecordBytes) return {from, bytes};
    std::memcpy(record_.data() + have, from, bytes);
    have += bytes;
    if (have == kRecordBytes) break;
  }
  return std::span(record_).first(have);
}

ssize_t Seal::send(std::span<const iovec> pieces) {
  if (in_kernel_ && !is_reader()) return send_by_kernel(pieces);
  size_t sent = 0;
  while (true) {
    const auto plain = next_record(pieces, sent);
    if (plain.empty()) return static_cast<ssize_t>(sent);
    if (!send_record(plain)) return sent != 0 ? static_cast<ssize_t>(sent) : -1;
    sent += plain.size();
  }
}

ssize_t Seal::send_by_kernel(std::span<const iovec> pieces) {
  const msghdr message = message_of(pieces);
  const ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) records_ += 1 + static_cast<size_t>(n) / kRecordBytes;
  return n;
}

// Some kernels report the bytes of an incomplete record as readable, although they cannot be read
// yet. So poll() shall wait for more than those, or we would spin. Keeps errno.
void Seal::await_more(bool nothing_now) {
  const int error = errno;
  int have = 0;
  if (nothing_now && ::ioctl(fd_, FIONREAD, &have) != 0) have = 0;
  if (const int wanted = have + 1; wanted != low_water_bytes_) {
    low_water_bytes_ = wanted;
    (void)setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
  }
  errno = error;
}

ssize_t Seal::receive_from_kernel(std::span<const iovec> places) {
  msghdr message = message_of(places);
  const ssize_t n = ::recvmsg(fd_, &message, MSG_DONTWAIT);
  if (n > 0) received_records_ += 1 + static_cast<size_t>(n) / kRecordBytes;
  await_more(n < 0 && errno == EAGAIN);
  if (n < 0 && errno == EIO) {
    trouble_ = "TLS: it sent an alert or a key update";
    errno = EPROTO;
  } else if (n < 0 && (errno == EBADMSG || errno == EMSGSIZE || errno == EINVAL)) {
    trouble_ = "TLS: it sent a bad record";
    errno = EPROTO;
  }
  return n;
}

ssize_t Seal::receive(std::span<const iovec> places) {
  if (in_kernel_ && is_reader()) return receive_from_kernel(places);
  const bool greeting = !shaken_;
  size_t wanted = 0, got = 0;
  for (const iovec& place : places) wanted += place.iov_len;
  starved_ = false;
  while (got < wanted && !over_) {
    ERR_clear_error();
    errno = 0;
    size_t n = 0;
    const int rc = greeting ? SSL_do_handshake(ssl_.get())
                            : SSL_read_ex(ssl_.get(), record_.data(),
                                          std::min(wanted - got, record_.size()), &n);
    if (rc != 1) {
      if (SSL_get_error(ssl_.get(), rc) == SSL_ERROR_ZERO_RETURN) {
        over_ = 0;
      } else if (fail(rc); errno != EAGAIN) {
        over_ = errno;
      } else if (key_changes_ > kKeyChangesMax) {
        trouble_ = "TLS: the peer sends only key updates and no data";
        over_ = EPROTO;
      } else {
        starved_ = dry_;
        break;
      }
      continue;
    }
    if (greeting) {
      shaken();
      return receive(places);
    }
    key_changes_ = 0;
    ++received_records_;
    if (!scatter(places, got, {record_.data(), n})) {
      errno = EFAULT;
      return -1;
    }
    got += n;
  }
  if (got != 0 || over_ == 0) return static_cast<ssize_t>(got);
  errno = over_.value_or(EAGAIN);
  return -1;
}

}  // namespace peercached::tcp
