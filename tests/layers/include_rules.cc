// SPDX-License-Identifier: Apache-2.0
#include "tests/layers/include_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace fullshard::layers {
namespace {

struct Include {
  int line = 0;
  bool quoted = false;
  std::string target;
};

std::optional<Include> include_of(const std::string& line) {
  const auto begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos || line.compare(begin, 8, "#include") != 0) return std::nullopt;
  const auto open = line.find_first_of("<\"", begin + 8);
  if (open == std::string::npos) return std::nullopt;
  const bool quoted = line[open] == '"';
  const auto close = line.find(quoted ? '"' : '>', open + 1);
  if (close == std::string::npos) return std::nullopt;
  return Include{0, quoted, line.substr(open + 1, close - open - 1)};
}

std::vector<Include> includes_of(std::string_view text) {
  std::vector<Include> result;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (auto include = include_of(line)) {
      include->line = number;
      result.push_back(*include);
    }
  }
  return result;
}

// "fullshard/comm/world/mesh.h" -> "comm"; nothing for other roots and for fullshard/fullshard.h.
std::optional<std::string> folder_of(std::string_view path) {
  constexpr std::string_view kRoot = "fullshard/";
  if (!path.starts_with(kRoot)) return std::nullopt;
  path.remove_prefix(kRoot.size());
  const auto slash = path.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  return std::string(path.substr(0, slash));
}

// "fullshard/comm/shm/arena.h" -> "shm", "fullshard/comm/world/mesh.h" -> ".".
std::string room_of(std::string_view path) {
  const auto last = path.rfind('/');
  const auto before = path.rfind('/', last - 1);
  const bool is_top = std::ranges::count(path, '/') < 3;
  return is_top ? "." : std::string(path.substr(before + 1, last - before - 1));
}

std::string wrong_room(const Layer& layer, std::string_view path, const Include& include) {
  if (layer.rooms.empty() || folder_of(include.target) != folder_of(path)) return "";
  const auto place = [&](const std::string& room) { return std::ranges::find(layer.rooms, room); };
  const auto from = room_of(path), to = room_of(include.target);
  for (const auto& room : {from, to}) {
    if (place(room) == layer.rooms.end()) {
      return fmt::format("{}/ is not among the rooms of its folder: {}", room,
                         fmt::join(layer.rooms, ", "));
    }
  }
  if (place(to) <= place(from)) return "";
  return fmt::format("{}/ may not include {}/, which comes later: {}", from, to,
                     fmt::join(layer.rooms, ", "));
}

bool is_torch(std::string_view target) {
  return target.starts_with("torch/") || target.starts_with("ATen/") || target.starts_with("c10/");
}

std::string wrong_layer(const Layers& layers, const std::string& folder, const Include& include) {
  if (include.target.starts_with("fullshard/") && std::ranges::count(include.target, '/') == 1) {
    return fmt::format("includes {}, which is for users; include the single headers",
                       include.target);
  }
  const auto target = folder_of(include.target);
  if (!target || *target == folder) return "";
  const auto& allowed = layers.find(folder)->second.may_include;
  if (allowed.contains(*target)) return "";
  return fmt::format("{}/ may not include {}/; it may include: {}", folder, *target,
                     allowed.empty() ? "nothing" : fmt::format("{}", fmt::join(allowed, ", ")));
}

// Headers stay light: torch's own headers cost each file that sees them many seconds.
// The others add next to nothing to what <ATen/core/Tensor.h> already brings.
constexpr std::string_view kLight[] = {"ATen/core/Tensor.h", "ATen/core/Generator.h",
                                       "ATen/core/grad_mode.h",
                                       "torch/csrc/autograd/function_hook.h"};

// What needs nothing of the library behind it.
constexpr std::string_view kDtypes[] = {"c10/core/ScalarType.h", "c10/util/BFloat16.h",
                                        "c10/util/Half.h"};

bool is_light(std::string_view target, std::string_view text) {
  if (target.starts_with("c10/") || std::ranges::count(kLight, target) > 0) return true;
  return target.starts_with("torch/nn/") && text.find("torch::nn::") != std::string_view::npos;
}

std::string wrong_torch(const Layer& layer, bool is_header, std::string_view text,
                        const Include& include) {
  if (!is_torch(include.target)) return "";
  if (layer.torch_free)
    return fmt::format("includes {} in a folder without libtorch", include.target);
  if (layer.dtypes_only && std::ranges::count(kDtypes, include.target) == 0) {
    return fmt::format("includes {} in a folder that does not link libtorch; {} at most",
                       include.target, fmt::join(kDtypes, ", "));
  }
  if (is_header && !is_light(include.target, text)) {
    return fmt::format(
        "a header includes {}; <ATen/core/Tensor.h> at most, or <torch/nn/…> where "
        "torch::nn is named",
        include.target);
  }
  return "";
}

}  // namespace

Layers parse_layers(std::string_view text) {
  Layers layers;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) throw std::runtime_error("no ':' in \"" + line + "\"");
    std::istringstream head(line.substr(0, colon));
    std::istringstream tail(line.substr(colon + 1));
    std::string folder, word;
    head >> folder;
    Layer layer;
    while (head >> word) {
      layer.torch_free |= word == "torch_free";
      layer.dtypes_only |= word == "dtypes";
    }
    while (tail >> word && word != "|") {
      const auto known = layers.find(word);
      if (known == layers.end()) {
        throw std::runtime_error(folder + " may include " + word + ", which comes later or never");
      }
      layer.may_include.insert(word);
      layer.may_include.insert(known->second.may_include.begin(), known->second.may_include.end());
    }
    while (tail >> word) layer.rooms.push_back(word);
    layers.emplace(folder, layer);
  }
  return layers;
}

std::vector<std::string> violations(const Layers& layers, std::string_view path,
                                    std::string_view text) {
  std::vector<std::string> result;
  const auto report = [&](const Include& include, const std::string& what) {
    if (!what.empty()) result.push_back(fmt::format("{}:{}: {}", path, include.line, what));
  };
  const auto folder = folder_of(path);
  const auto layer = folder ? layers.find(*folder) : layers.end();
  if (folder && layer == layers.end()) {
    return {fmt::format("{}: no fullshard_library({}) in CMakeLists.txt", path, *folder)};
  }
  for (const auto& include : includes_of(text)) {
    if (include.target == "torch/torch.h") {
      report(include, "includes torch/torch.h, 28 s per file; include single headers");
    } else if (folder) {
      if (include.quoted) {
        report(include, wrong_layer(layers, *folder, include));
        report(include, wrong_room(layer->second, path, include));
      }
      report(include, wrong_torch(layer->second, path.ends_with(".h"), text, include));
    }
  }
  return result;
}

}  // namespace fullshard::layers
