// SPDX-License-Identifier: Apache-2.0
// What Hugging Face's programs have downloaded to this machine: models and data by their names of
// the hub. Only files are looked at; nothing is downloaded.
//
//   CACHE/models--google-t5--t5-small/refs/main             the revision's hash
//   CACHE/models--google-t5--t5-small/snapshots/HASH/…      its files
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard::base {

enum class HubKind { model, dataset };

// "gpt2", "google-t5/t5-small": what the hub would take for a name.
bool is_hub_name(std::string_view text);

class HubCache {
 public:
  // Where HF_HUB_CACHE or HUGGINGFACE_HUB_CACHE say, else `hub` in HF_HOME, else in
  // XDG_CACHE_HOME/huggingface, else in ~/.cache/huggingface. Empty without a home.
  using Lookup = std::function<std::optional<std::string>(const std::string& name)>;
  explicit HubCache(const Lookup& lookup);
  static HubCache of_process();

  const std::string& folder() const { return folder_; }
  // The files of the revision `main`; empty where it is not there.
  std::string find(HubKind kind, const std::string& name) const;

 private:
  std::string folder_;
};

// "hf download google-t5/t5-small".
std::string download_command(HubKind kind, const std::string& name);

// A path that is there as it is; a model that the cache has as its folder; else `name`.
std::string path_or_cached_model(const std::string& name);

// HF_HOME, XDG_CACHE_HOME/huggingface or ~/.cache/huggingface; empty without a home.
std::string hugging_face_home(const HubCache::Lookup& lookup);
std::string hugging_face_home();  // of this process

}  // namespace fullshard::base
