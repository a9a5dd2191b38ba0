// Whether what this node owns and has no record of is nowhere: the control plane says so, per view.
//
// A look into the shard takes a while, in which the answer may change twice. So it counts only if
// one *term* lasted from before the look until after it.
#pragma once

#include <atomic>
#include <cstdint>

namespace peercached {

class Finality {
 public:
  // From one thread at a time.
  void set(bool final, uint64_t view_number) {
    term_.store(0);
    if (!final) return;
    view_number_.store(view_number);
    term_.store(++terms_);
  }

  // The term that lasts, for a reader with that view; 0: none.
  uint64_t term(uint64_t view_number) const {
    const uint64_t term = term_.load();
    return view_number_.load() == view_number && lasts(term) ? term : 0;
  }
  bool lasts(uint64_t term) const { return term != 0 && term_.load() == term; }

 private:
  std::atomic<uint64_t> term_{0}, view_number_{0};
  uint64_t terms_ = 0;
};

}  // namespace peercached
