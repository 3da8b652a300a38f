// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/replaced_run.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/real_path.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/report/records/run_start.h"
#include "fullshard/stored/last_checkpoint.h"
#include "fullshard/train/written_folder.h"

namespace fullshard::train {
namespace {

bool is_read(const std::string& folder, const std::vector<std::string>& read_paths) {
  return std::any_of(read_paths.begin(), read_paths.end(),
                     [&](const std::string& path) { return base::lies_in(path, folder); });
}

}  // namespace

ReplacedRun::ReplacedRun(std::string folder)
    : folder_(std::move(folder)), mark_(folder_ + "/run.replaced") {}

bool ReplacedRun::is_there() const { return base::is_file(mark_); }

void ReplacedRun::intend(bool replaces) {
  if (replaces && base::is_folder(folder_ + "/checkpoints")) {
    report::write_whole_file(mark_, "");
  } else {
    ::unlink(mark_.c_str());
  }
}

void ReplacedRun::remove(bool replaces, const std::vector<std::string>& read_paths) {
  report::remove_run_records(folder_);
  if (replaces) {
    remove_checkpoints(read_paths);
    for (const char* name : {"model", "adapter", "best"}) {
      const std::string result = folder_ + "/" + name;
      if (!is_read(result, read_paths)) remove_written_folder(result);
    }
    for (const char* name : {"csv", "tensorboard"}) {
      const std::string result = folder_ + "/" + name;
      if (!is_read(result, read_paths)) base::remove_flat_folder(result);
    }
  }
  ::unlink(mark_.c_str());
}

void ReplacedRun::remove_checkpoints(const std::vector<std::string>& read_paths) const {
  stored::remove_all_checkpoints(folder_ + "/checkpoints", [&](const std::string& checkpoint) {
    return is_read(checkpoint, read_paths);
  });
}

}  // namespace fullshard::train
