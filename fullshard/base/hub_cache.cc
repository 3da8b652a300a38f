// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "fullshard/base/file_kind.h"

namespace fullshard::base {
namespace {

constexpr size_t kLongestName = 200;

std::optional<std::string> environment_value(const std::string& name) {
  const char* const text = std::getenv(name.c_str());
  return text == nullptr || *text == '\0' ? std::nullopt : std::optional<std::string>(text);
}

bool is_hub_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '-' || letter == '_' || letter == '.';
}

bool is_hub_part(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, is_hub_letter) && part.front() != '.' &&
         part.front() != '-' && part.find("..") == std::string_view::npos &&
         part.find("--") == std::string_view::npos;
}

// The hash that a small file holds; empty where it is none: it becomes part of a path.
std::string hash_in(const std::string& path) {
  std::ifstream file(path);
  std::string hash;
  file >> hash;
  constexpr size_t kLongestHash = 64;
  const bool is_hash = !hash.empty() && hash.size() <= kLongestHash &&
                       std::ranges::all_of(hash, [](unsigned char c) { return std::isxdigit(c); });
  return is_hash ? hash : "";
}

}  // namespace

bool is_hub_name(std::string_view text) {
  if (text.size() > kLongestName) return false;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_hub_part(text);
  return is_hub_part(text.substr(0, slash)) && is_hub_part(text.substr(slash + 1));
}

std::string hugging_face_home(const HubCache::Lookup& lookup) {
  if (const auto home = lookup("HF_HOME")) return *home;
  if (const auto cache = lookup("XDG_CACHE_HOME")) return *cache + "/huggingface";
  const auto home = lookup("HOME");
  return home ? *home + "/.cache/huggingface" : "";
}

std::string hugging_face_home() { return hugging_face_home(environment_value); }

HubCache::HubCache(const Lookup& lookup) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto folder = lookup(name)) {
      folder_ = *folder;
      return;
    }
  }
  const std::string home = hugging_face_home(lookup);
  if (!home.empty()) folder_ = home + "/hub";
}

HubCache HubCache::of_process() { return HubCache(environment_value); }

std::string HubCache::find(HubKind kind, const std::string& name) const {
  if (folder_.empty() || !is_hub_name(name)) return "";
  std::string plain = name;
  if (const size_t slash = plain.find('/'); slash != std::string::npos) {
    plain.replace(slash, 1, "--");
  }
  const std::string repository =
      folder_ + (kind == HubKind::model ? "/models--" : "/datasets--") + plain;
  const std::string hash = hash_in(repository + "/refs/main");
  const std::string snapshot = repository + "/snapshots/" + hash;
  return !hash.empty() && is_folder(snapshot) ? snapshot : "";
}

std::string download_command(HubKind kind, const std::string& name) {
  return kind == HubKind::model ? "hf download " + name : "hf download --repo-type dataset " + name;
}

std::string path_or_cached_model(const std::string& name) {
  if (is_file(name) || is_folder(name)) return name;
  const std::string cached = HubCache::of_process().find(HubKind::model, name);
  return cached.empty() ? name : cached;
}

}  // namespace fullshard::base
