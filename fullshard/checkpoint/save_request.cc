// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/save_request.h"

#include <unistd.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/replace_file.h"

namespace fullshard::checkpoint {
namespace {

constexpr const char* kRequest = "/request";
constexpr int64_t kMostBytes = 255;

bool can_be(const std::string& name) {
  return formats::is_plain_name(name) && name.size() <= kMostBytes && !name.ends_with(".part") &&
         name != "latest" && name != "request" && !name.starts_with("step-") &&
         std::none_of(name.begin(), name.end(), [](unsigned char sign) { return sign < ' '; });
}

}  // namespace

void ask_for_save(const std::string& directory, const std::string& name) {
  if (!can_be(name)) {
    fail_as(ErrorKind::usage,
            "'{}': cannot be the name of a checkpoint; take one without '/', not latest or "
            "request, not beginning with step-",
            base::printable(name));
  }
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
  return name;
}

}  // namespace fullshard::checkpoint
