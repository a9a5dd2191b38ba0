// The byte stream of one connection, plain or under TLS (seal.h).
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "transfer/tcp/seal.h"
#include "transfer/tcp/socket.h"

namespace peercached::tcp {

class Stream {
 public:
  Stream() = default;
  explicit Stream(Socket socket) : socket_(std::move(socket)) {}

  // Call before the first byte.
  void seal_as_reader(const Hello& who, const std::string& token) {
    seal_ = Seal::of_reader(socket_.fd(), who, token);
  }
  // Call before the first byte. `token_of` must outlive the stream.
  void seal_as_holder(const Seal::TokenOf& token_of);
  const Seal* seal() const { return seal_.get(); }
  bool shake() { return seal_->shake(); }

  // Like sendmsg() and recvmsg(), but without SIGPIPE. Both set errno to EAGAIN instead of
  // blocking, except send() on a plain blocking socket: there the kernel's wait is the cheapest
  // one.
  ssize_t send(std::span<const iovec> pieces);
  ssize_t send(std::span<const std::byte> bytes);
  ssize_t receive(std::span<const iovec> places);
  ssize_t receive(void* to, size_t bytes);
  // Data has arrived that poll() does not report.
  bool has_more() const { return seal_ && seal_->has_more(); }
  // The reader must use another connection from now on.
  bool is_worn() const { return seal_ && seal_->is_worn(); }
  // The reason behind an errno of send() or receive().
  std::string error_text(int error) const;
  bool token_unknown() const { return seal_ && seal_->token_unknown(); }

  int fd() const { return socket_.fd(); }
  void shut() const { socket_.shut(); }
  void close() { socket_.close(); }

 private:
  Socket socket_;
  std::unique_ptr<Seal> seal_;
};

}  // namespace peercached::tcp
