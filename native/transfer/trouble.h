// What is wrong with a peer, or with a connection to it.
#pragma once

#include <string>
#include <utility>

namespace peercached {

struct Trouble {
  Trouble() = default;
  Trouble(std::string text_) : text(std::move(text_)) {}
  Trouble(const char* text_) : text(text_) {}

  bool empty() const { return text.empty(); }

  std::string text;            // for people; empty: nothing is wrong
  bool token_unknown = false;  // the peer lives, and needs another handshake with us
};

}  // namespace peercached
