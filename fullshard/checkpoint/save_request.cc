// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/save_request.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/stored/checkpoint_folder.h"

namespace fullshard::checkpoint {
namespace {

constexpr const char* kRequest = "/request";
constexpr int64_t kMostBytes = 250;  // with .part behind it a file system's 255

bool can_be(const std::string& name) {
  return formats::is_plain_name(name) && name.size() <= kMostBytes && !name.ends_with(".part") &&
         name != "latest" && name != "request" && !name.starts_with("step-") &&
         std::none_of(name.begin(), name.end(), [](unsigned char sign) { return sign < ' '; });
}

std::string folder_of(const std::string& directory, const std::string& name) {
  return directory + "/" + name;
}

void check_is_free(const std::string& directory, const std::string& name) {
  if (stored::may_become_checkpoint(folder_of(directory, name))) return;
  fail_as(ErrorKind::usage,
          "'{}': {} exists and is not a checkpoint, so it is not replaced; take another name",
          base::printable(name), folder_of(directory, name));
}

}  // namespace

void ask_for_save(const std::string& directory, const std::string& name) {
  if (!can_be(name)) {
    fail_as(
        ErrorKind::usage,
        "'{}': cannot be the name of a checkpoint; take one without '/', of at most {} bytes, not "
        "latest or request, not beginning with step-",
        base::printable(name), kMostBytes);
  }
  check_is_free(directory, name);
  formats::make_folder_tree(directory);
  formats::replace_file(directory + kRequest, name);
}

std::optional<std::string> take_save_request(const std::string& directory) {
  const std::string path = directory + kRequest;
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  std::string name;
  try {
    const formats::FileHandle file = formats::FileHandle::open(path);
    name = file.read_text(0, std::min(file.size(), kMostBytes + 1), "name");
  } catch (const Error&) {
    name.clear();
  }
  ::unlink(path.c_str());
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  if (!can_be(name)) return std::nullopt;
  // It may have come there since it was asked for: that must not end the run.
  if (!stored::may_become_checkpoint(folder_of(directory, name))) {
    spdlog::warn(
        "checkpoint save '{}': {} exists and is not a checkpoint, so nothing is saved there",
        base::printable(name), folder_of(directory, name));
    return std::nullopt;
  }
  return name;
}

}  // namespace fullshard::checkpoint
