// Just enough JSON to write a status document: objects of numbers, texts, booleans and arrays.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/foreign_text.h"

namespace peercached {

class JsonWriter {
 public:
  JsonWriter& open(char bracket) {  // '{' or '['
    text_ += bracket;
    return *this;
  }
  JsonWriter& close(char bracket) {
    if (text_.back() == ',') text_.pop_back();
    text_ += bracket;
    text_ += ',';
    return *this;
  }
  JsonWriter& key(std::string_view name) {
    quote(name);
    text_ += ':';
    return *this;
  }
  template <typename T>
  requires std::is_arithmetic_v<T> JsonWriter& value(T number) {
    text_ += std::to_string(number);
    text_ += ',';
    return *this;
  }
  JsonWriter& value(bool truth) {
    text_ += truth ? "true," : "false,";
    return *this;
  }
  template <typename T>
  JsonWriter& value(const std::atomic<T>& number) {
    return value(number.load());
  }
  JsonWriter& value(std::string_view text) {
    quote(text);
    text_ += ',';
    return *this;
  }
  // Without this, a literal would be taken for a bool.
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  template <typename T>
  JsonWriter& field(std::string_view name, const T& content) {
    return key(name).value(content);
  }
  std::string take() {
    if (!text_.empty() && text_.back() == ',') text_.pop_back();
    return std::move(text_);
  }

 private:
  void quote(std::string_view text) {
    static constexpr char kHex[] = "0123456789abcdef";
    const bool is_utf8 = is_presentable(text);
    text_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (!is_utf8 && (byte < 0x20 || byte >= 0x7f)) {  // as Latin-1: it stays valid JSON
        text_ += "\\u00";
        text_ += kHex[byte >> 4];
        text_ += kHex[byte & 15];
      } else {
        text_ += c;
      }
    }
    text_ += '"';
  }

  std::string text_;
};

}  // namespace peercached
