// Questions to one peer without pages in the answer: hold pages, look up pages, take records. A
// question may need several frames. Each frame is answered before the next one is sent.
#pragma once

#include "transfer/tcp/frames.h"
#include "transfer/tcp/tcp_engine.h"

namespace peercached::tcp {

class Question {
 public:
  Question(HolderIndex asked, Incarnation of_it) : peer(asked), incarnation(of_it) {}
  virtual ~Question() = default;

  const HolderIndex peer;
  const Incarnation incarnation;  // of the peer

  // Appends the next frame. False: no question is left.
  virtual bool ask(uint64_t request, std::vector<std::byte>& out) = 0;
  // The answer to that frame: its expected kind and largest body. answered() returns nullptr, or
  // the error in the answer.
  virtual FrameKind answer_kind() const = 0;
  virtual size_t answer_bytes_max() const = 0;
  virtual const char* answered(uint64_t request, std::span<const std::byte> body) = 0;

 protected:
  size_t answered_ = 0, asked_ = 0;  // digests or rows; asked_: of the last frame
};

class HoldQuestion final : public Question {
 public:
  HoldQuestion(HoldBatch& batch, uint32_t hold_ms)
      : Question(batch.peer, batch.incarnation), batch_(batch), hold_ms_(hold_ms) {}

  bool ask(uint64_t request, std::vector<std::byte>& out) override;
  FrameKind answer_kind() const override { return FrameKind::held; }
  size_t answer_bytes_max() const override { return held_body_bytes(asked_); }
  const char* answered(uint64_t request, std::span<const std::byte> body) override;

 private:
  HoldBatch& batch_;
  const uint32_t hold_ms_;
};

class LookupQuestion final : public Question {
 public:
  LookupQuestion(LookupBatch& batch, uint64_t view_number)
      : Question(batch.peer, batch.incarnation), batch_(batch), view_number_(view_number) {}

  bool ask(uint64_t request, std::vector<std::byte>& out) override;
  FrameKind answer_kind() const override { return FrameKind::located; }
  size_t answer_bytes_max() const override { return located_body_bytes_max(asked_); }
  const char* answered(uint64_t request, std::span<const std::byte> body) override;

 private:
  LookupBatch& batch_;
  const uint64_t view_number_;
};

class PushQuestion final : public Question {
 public:
  explicit PushQuestion(PushBatch& batch)
      : Question(batch.peer, batch.incarnation), batch_(batch) {}

  bool ask(uint64_t request, std::vector<std::byte>& out) override;
  FrameKind answer_kind() const override { return FrameKind::pushed; }
  size_t answer_bytes_max() const override { return sizeof(PushedHead); }
  const char* answered(uint64_t request, std::span<const std::byte> body) override;

 private:
  PushBatch& batch_;
};

}  // namespace peercached::tcp
