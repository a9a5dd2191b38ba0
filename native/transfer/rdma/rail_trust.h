// Decides whether reads from one peer may use one rail, judging by earlier reads over it.
//
// If a rail gives no answer (packets lost for good, a failed connect, silence), the reason is
// unknown. Each read over the rail would be late. So the rail is doubted: no read uses it until a
// test channel has fetched data (Channel::ask). No read waits for that test. After any other error,
// reads try the rail again, with backoff.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>

#include "common/clock.h"

namespace peercached::rdma {

// Any thread may call heard() and relied_on(). The rest needs the mutex of the PeerChannels.
class RailTrust {
 public:
  void heard(TimePoint when) { heard_at_.store(when, std::memory_order_relaxed); }
  TimePoint heard_at() const { return heard_at_.load(std::memory_order_relaxed); }

  bool relied_on() const { return !doubted_.load(std::memory_order_relaxed); }
  bool may_connect(TimePoint now) const { return retry_at_ <= now; }
  // The last trouble; empty while the rail works.
  const std::string& trouble() const { return trouble_; }
  // Time limit of a proof. At most the wait of the read that raised the doubt, or the next read
  // would be late as well.
  Clock::duration proof_within() const { return proof_within_; }

  void back_off(TimePoint now, const std::string& why) {
    if (now < retry_at_) return;  // several channels report the same fault
    // A rail that loses some packets can prove itself and be late again. So keep the backoff for a
    // while.
    if (now - troubled_at_ > kForgottenAfter) backoff_ms_ = 0;
    troubled_at_ = now;
    trouble_ = why;
    // The first retry is immediate: one lost connection says little.
    retry_at_ = now + std::chrono::milliseconds(backoff_ms_);
    backoff_ms_ = std::clamp(backoff_ms_ * 2, kBackoffMinMs, kBackoffMaxMs);
  }
  void doubt(TimePoint now, const std::string& why, Clock::duration proof_within = kProofMax) {
    if (!relied_on()) return;
    proof_within_ = std::min<Clock::duration>(proof_within, kProofMax);
    back_off(now, why);
    trouble_ = why;
    doubted_ = true;
    doubted_at_ = now;
  }
  // A channel came back without trouble. That clears a doubt only if the rail was heard since.
  void in_order() {
    if (!relied_on() && heard_at() <= doubted_at_) return;
    doubted_ = false;
    retry_at_ = {};
    trouble_.clear();
  }

 private:
  static constexpr int kBackoffMinMs = 20, kBackoffMaxMs = 2000;
  static constexpr std::chrono::seconds kForgottenAfter{60};
  // An answer that takes longer will not come: this allows for retransmissions of lost packets.
  static constexpr std::chrono::milliseconds kProofMax{1000};
  std::atomic<TimePoint> heard_at_{TimePoint{}};
  TimePoint troubled_at_{};
  TimePoint doubted_at_{};
  TimePoint retry_at_{};
  int backoff_ms_ = 0;
  Clock::duration proof_within_ = kProofMax;
  std::atomic<bool> doubted_ = false;
  std::string trouble_;
};

}  // namespace peercached::rdma
