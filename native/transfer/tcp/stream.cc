#include "transfer/tcp/stream.h"

#include <cerrno>

#include "common/error_text.h"

namespace peercached::tcp {
void Stream::seal_as_holder(const Seal::TokenOf& token_of) {
  seal_ = Seal::of_holder(socket_.fd(), token_of);
}

ssize_t Stream::send(std::span<const iovec> pieces) {
  if (seal_) return seal_->send(pieces);
  const msghdr message = message_of(pieces);
  return ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
}

ssize_t Stream::send(std::span<const std::byte> bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};  // only read
  return send({&piece, 1});
}

ssize_t Stream::receive(std::span<const iovec> places) {
  if (seal_) return seal_->receive(places);
  msghdr message = message_of(places);
  return ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT);
}

ssize_t Stream::receive(void* to, size_t bytes) {
  const iovec place{to, bytes};
  return receive({&place, 1});
}

std::string Stream::error_text(int error) const {
  if (error == EPROTO && seal_) return seal_->trouble();
  return peercached::error_text(error);
}

}  // namespace peercached::tcp
