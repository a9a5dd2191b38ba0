#include "transfer/tcp/question.h"

#include <algorithm>

namespace peercached::tcp {
namespace {

template <typename T>
std::span<const T> next_of(std::span<const T> all, size_t answered, size_t at_once) {
  const auto left = all.subspan(answered);
  return left.first(std::min(left.size(), at_once));
}

}  // namespace

bool HoldQuestion::ask(uint64_t request, std::vector<std::byte>& out) {
  const auto some = next_of(batch_.digests, answered_, kDigestsPerRequestMax);
  asked_ = some.size();
  batch_.answered = some.empty();
  if (!some.empty()) append_hold(out, request, hold_ms_, some);
  return !some.empty();
}

const char* HoldQuestion::answered(uint64_t request, std::span<const std::byte> body) {
  const auto held = batch_.held.subspan(answered_, asked_);
  const char* wrong = parse_held(body, request, held);
  if (wrong != nullptr) std::fill(held.begin(), held.end(), uint8_t{0});
  answered_ += asked_;
  return wrong;
}

bool LookupQuestion::ask(uint64_t request, std::vector<std::byte>& out) {
  const auto some = next_of(batch_.digests, answered_, kDigestsPerRequestMax);
  asked_ = some.size();
  if (some.empty()) {
    batch_.answered = true;
    batch_.answered_at = Clock::now();
    return false;
  }
  append_lookup(out, request, view_number_, some);
  return true;
}

const char* LookupQuestion::answered(uint64_t request, std::span<const std::byte> body) {
  answered_ += asked_;
  return parse_located(body, request, batch_.located);
}

bool PushQuestion::ask(uint64_t request, std::vector<std::byte>& out) {
  if (batch_.answered) return false;
  append_push(out, request, {.rows = batch_.rows, .from = batch_.from, .to = batch_.to});
  return true;
}

const char* PushQuestion::answered(uint64_t request, std::span<const std::byte> body) {
  const char* wrong = parse_pushed(body, request, batch_.stands_at);
  batch_.answered = wrong == nullptr;
  return wrong;
}

}  // namespace peercached::tcp
