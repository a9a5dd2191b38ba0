// Sentences for the daemon's log, limited in rate.
//
// A peer that floods us must not flood the log. Of each kind one sentence is kept, and the rest is
// counted. A kind that was just told waits for kQuiet. Thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/foreign_text.h"
#include "common/mutex.h"

namespace peercached {

class Notices {
 public:
  static constexpr std::chrono::seconds kQuiet{5};
  static constexpr size_t kSentenceBytesMax = 400;

  // `kind`: a literal, one per place in the code. So their number is bounded.
  void say(std::string_view kind, std::string sentence) {
    sentence = presentable(sentence, kSentenceBytesMax);
    MutexLock lock(mutex_);
    Kind& one = kinds_[kind];
    if (one.count++ == 0) one.sentence = std::move(sentence);
  }

  // The sentences that are due. They are forgotten.
  std::vector<std::string> take(TimePoint now = Clock::now()) {
    std::vector<std::string> sentences;
    MutexLock lock(mutex_);
    for (auto& [kind, one] : kinds_) {
      if (one.count == 0 || now - one.told < kQuiet) continue;
      if (one.count > 1) {
        one.sentence += " (and " + std::to_string(one.count - 1) + " more like it)";
      }
      sentences.push_back(std::move(one.sentence));
      one.sentence.clear();
      one.count = 0;
      one.told = now;
    }
    return sentences;
  }

 private:
  struct Kind {
    std::string sentence;
    uint64_t count = 0;
    TimePoint told{};
  };
  Mutex mutex_;
  std::map<std::string_view, Kind> kinds_ GUARDED_BY(mutex_);
};

// To the log, if there is one.
inline void say(Notices* notices, std::string_view kind, std::string sentence) {
  if (notices != nullptr) notices->say(kind, std::move(sentence));
}

}  // namespace peercached
