// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/replace_file.h"

#include <unistd.h>

#include <cstdio>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

void replace_file(const std::string& path, std::string_view text) {
  const std::string part = path + ".part";
  ::unlink(part.c_str());  // of a run that was killed
  {
    FileHandle file = FileHandle::create(part);
    file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
    file.sync();
  }
  rename_into_place(part, path);
}

void rename_into_place(const std::string& part, const std::string& path) {
  check_system(std::rename(part.c_str(), path.c_str()) == 0, "{}: cannot be renamed", part);
  sync_folder_of(path);
}

}  // namespace fullshard::formats
