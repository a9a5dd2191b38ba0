// Questions to one peer without pages in the answer: hold pages, look up pages, store records. A
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
  // The answer to that frame is lost. The peer may still have received the frame. The same question
  // may be asked again.
  virtual void unanswered() {}

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

class PublishQuestion final : public Question {
 public:
  PublishQuestion(PublishBatch& batch, std::atomic<uint64_t>& fence)
      : Question(batch.peer, batch.incarnation), batch_(batch), fence_(fence) {}

  bool ask(uint64_t request, std::vector<std::byte>& out) override;
  FrameKind answer_kind() const override { return FrameKind::published; }
  size_t answer_bytes_max() const override { return sizeof(PublishedHead); }
  const char* answered(uint64_t request, std::span<const std::byte> body) override;
  void unanswered() override { fence_.fetch_add(1); }

 private:
  PublishBatch& batch_;
  std::atomic<uint64_t>& fence_;
  bool taken_ = true;
};

}  // namespace peercached::tcp
