// The real path of a file that the tier names relative to its open directory.
#pragma once

#include <filesystem>
#include <string>

namespace peercached::disk {

inline std::string real_path(const std::string& path) {
  const std::filesystem::path given(path);
  std::error_code error;
  const auto folder = std::filesystem::canonical(given.parent_path(), error);
  return error ? path : (folder / given.filename()).string();
}

}  // namespace peercached::disk
