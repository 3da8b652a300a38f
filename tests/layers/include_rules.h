// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::layers {

// One folder of fullshard/: what it may include, closed under inclusion, and whether libtorch.
struct Layer {
  std::set<std::string> may_include;
  bool torch_free = false;
  bool dtypes_only = false;  // sees the names of libtorch's dtypes, and links nothing of it
  // Sub-folders in the order of their layers, "." the folder itself; each may include itself and
  // those before it. Empty where sub-folders are no layers.
  std::vector<std::string> rooms;
};

using Layers = std::map<std::string, Layer, std::less<>>;

// Reads the lines that CMake writes from its fullshard_library() calls:
//   "tensor: base", "launch torch_free: base", "formats dtypes: base". A folder must come after
//   those it includes. Rooms come last: "comm: memory | . store shm".
Layers parse_layers(std::string_view text);

// What is wrong with the includes of one file, one sentence each, as "path:line: …".
// `path` is relative to the root of the checkout.
std::vector<std::string> violations(const Layers& layers, std::string_view path,
                                    std::string_view text);

}  // namespace fullshard::layers
