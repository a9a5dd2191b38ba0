// What the reads from one peer have seen of one rail, and so whether they may rely on it.
//
// A rail on which there was no answer (packets lost for good, a connect that failed, nothing but
// silence) tells nobody what is wrong, and each read that relied on it would be late. It is
// doubted: no read uses it until a channel of its own has fetched what data looks like
// (Channel::ask), and nobody waits for that. After another error the rail is tried again by whoever
// reads, later each time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>

#include "common/clock.h"

namespace peercached::rdma {

// heard() and relied_on() from any thread; the rest under the mutex of the PeerChannels.
class RailTrust {
 public:
  void heard(TimePoint when) { heard_at_.store(when, std::memory_order_relaxed); }
  TimePoint heard_at() const { return heard_at_.load(std::memory_order_relaxed); }

  bool relied_on() const { return !doubted_.load(std::memory_order_relaxed); }
  bool may_connect(TimePoint now) const { return retry_at_ <= now; }
  // The last trouble; empty while all is in order.
  const std::string& trouble() const { return trouble_; }
  // How long a proof may take: no longer than the read that raised the doubt had waited, or who
  // reads next would be late as well.
  Clock::duration proof_within() const { return proof_within_; }

  void back_off(TimePoint now, const std::string& why) {
    if (now < retry_at_) return;  // its channels find out one after the other
    // A rail that loses some packets proves itself, and is late again: so it is not forgotten at
    // once.
    if (now - troubled_at_ > kForgottenAfter) backoff_ms_ = 0;
    troubled_at_ = now;
    trouble_ = why;
    // At once the first time: one lost connection says little.
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
  // A channel came back in order. Of a doubted rail that says nothing, unless it was heard since.
  void in_order() {
    if (!relied_on() && heard_at() <= doubted_at_) return;
    doubted_ = false;
    retry_at_ = {};
    trouble_.clear();
  }

 private:
  static constexpr int kBackoffMinMs = 20, kBackoffMaxMs = 2000;
  static constexpr std::chrono::seconds kForgottenAfter{60};
  // What has not come in this time will not; where packets get lost, it is sent again.
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
