// SPDX-License-Identifier: Apache-2.0
// What a model is made by beside its config.json: the names and shapes in the file of weights that
// it will be loaded from. A configuration leaves open what only the file tells (whether T5's head
// is the embedding), and its sizes are worth nothing if they are not the file's.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard {

class StoredWeights {
 public:
  using Shapes = std::map<std::string, std::vector<int64_t>, std::less<>>;
  using AreEqual = std::function<bool(const std::string& name, const std::string& other)>;

  StoredWeights() = default;  // there is no file: new weights will be drawn
  // `are_equal` tells whether two tensors of one shape have the same values; it may read them.
  StoredWeights(Shapes shapes, AreEqual are_equal);

  bool are_there() const { return !shapes_.empty(); }
  bool has(std::string_view name) const { return shapes_.contains(name); }
  // Both are there, with the same values.
  bool are_equal(const std::string& name, const std::string& other) const;
  // A dimension of the first of the tensors that is there; nothing when none is.
  std::optional<int64_t> dimension(std::initializer_list<std::string_view> names,
                                   size_t dimension) const;
  // How many numbers N there are in names that begin with a prefix, N and a dot; nothing for none.
  std::optional<int64_t> num_layers(std::initializer_list<std::string_view> prefixes) const;

 private:
  Shapes shapes_;
  AreEqual are_equal_;
};

}  // namespace fullshard
