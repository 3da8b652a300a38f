// SPDX-License-Identifier: Apache-2.0
// Files of a data set that Hugging Face's programs have downloaded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

// "wmt/wmt16:ro-en": a name on the hub, and one of its configurations.
struct HubDatasetName {
  std::string name{};
  std::string configuration{};  // empty: not given

  // Absent if the text cannot be a name.
  static std::optional<HubDatasetName> parse(std::string_view text);
};

// The files of a split, "train" or "validation", in the cache, found by the names of files and
// folders, as the hub does. Errors, of the kind `input`, give the command that downloads the data
// set, or that converts a format which is not supported to JSON.
std::vector<std::string> find_hub_dataset(const HubDatasetName& name, std::string_view split);

}  // namespace fullshard::data
