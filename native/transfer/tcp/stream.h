// The bytes of one connection, in clear or sealed (seal.h).
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

  // Before the first byte.
  void seal_as_reader(const Hello& who, const std::string& token) {
    seal_ = Seal::of_reader(socket_.fd(), who, token);
  }
  // `token_of` outlives the stream.
  void seal_as_holder(const Seal::TokenOf& token_of);
  const Seal* seal() const { return seal_.get(); }
  bool shake() { return seal_->shake(); }

  // As sendmsg() and recvmsg() do, without SIGPIPE. Of both, errno is EAGAIN where they would
  // block; in clear a socket that blocks does so in send(), which is the cheapest wait there is.
  ssize_t send(std::span<const iovec> pieces);
  ssize_t send(std::span<const std::byte> bytes);
  ssize_t receive(std::span<const iovec> places);
  ssize_t receive(void* to, size_t bytes);
  // Something has come already that poll() does not tell of.
  bool has_more() const { return seal_ && seal_->has_more(); }
  // What is behind an errno of these.
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
