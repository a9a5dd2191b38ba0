// What one peer is asked in frames that have no pages behind them: to hold pages, where pages are,
// and to keep records. Each of as many frames as it takes is answered before the next is sent.
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

  // Appends the next frame; false: nothing is left to ask.
  virtual bool ask(uint64_t request, std::vector<std::byte>& out) = 0;
  // The answer to that frame: its kind, the most that its body may be, and what is wrong with it.
  virtual FrameKind answer_kind() const = 0;
  virtual size_t answer_bytes_max() const = 0;
  virtual const char* answered(uint64_t request, std::span<const std::byte> body) = 0;
  // No answer to that frame will be heard; it may reach the peer still. It may be asked again.
  virtual void unanswered() {}
};

class HoldQuestion final : public Question {
 public:
  HoldQuestion(const HoldBatch& batch, uint32_t hold_ms)
      : Question(batch.peer, batch.incarnation), batch_(batch), hold_ms_(hold_ms) {}

  bool ask(uint64_t request, std::vector<std::byte>& out) override;
  FrameKind answer_kind() const override { return FrameKind::held; }
  size_t answer_bytes_max() const override { return held_body_bytes(asked_); }
  const char* answered(uint64_t request, std::span<const std::byte> body) override;

 private:
  const HoldBatch batch_;
  const uint32_t hold_ms_;
  size_t answered_ = 0, asked_ = 0;  // digests; asked_ of the last frame
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
  size_t answered_ = 0, asked_ = 0;
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
  size_t answered_ = 0, asked_ = 0;
};

}  // namespace peercached::tcp
