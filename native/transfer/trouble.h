// The reason why a peer, or a connection to it, does not work.
#pragma once

#include <string>
#include <utility>

namespace peercached {

struct Trouble {
  Trouble() = default;
  Trouble(std::string text_) : text(std::move(text_)) {}
  Trouble(const char* text_) : text(text_) {}

  bool empty() const { return text.empty(); }

  std::string text;            // for people; empty: no trouble
  bool token_unknown = false;  // the peer is alive, but must shake hands with us again
};

}  // namespace peercached
