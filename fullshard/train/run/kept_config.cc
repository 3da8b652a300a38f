// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/kept_config.h"

#include <algorithm>
#include <vector>

#include "fullshard/base/file_kind.h"
#include "fullshard/config/document/reader.h"
#include "fullshard/config/schema/settings.h"
#include "fullshard/report/records/run_file.h"

namespace fullshard::train {
namespace {

void add_files_of(std::vector<std::string>& sources, const config::Settings* settings) {
  if (settings == nullptr) return;
  for (const auto& [path, entry] : settings->entries()) {
    const std::string& file = entry.origin.file;
    const bool is_known = std::find(sources.begin(), sources.end(), file) != sources.end();
    if (!is_known && base::is_file(file)) sources.push_back(file);
  }
}

}  // namespace

void keep_config(const std::string& run, const std::string& config_file, const Plan& plan) {
  std::vector<std::string> sources;
  if (!config_file.empty()) sources.push_back(config_file);
  add_files_of(sources, plan.settings());
  add_files_of(sources, plan.deepspeed());
  std::vector<std::string> written;
  for (const std::string& source : sources) {
    const std::string text = config::read_config_file(source).text;
    const std::string name =
        run + "/given_config" + (config::looks_like_json(text) ? ".json" : ".yaml");
    if (std::find(written.begin(), written.end(), name) != written.end()) continue;
    report::write_whole_file(name, text);
    written.push_back(name);
  }
}

}  // namespace fullshard::train
