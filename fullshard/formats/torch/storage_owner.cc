// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/storage_owner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <unordered_set>
#include <utility>
#include <vector>

namespace fullshard::formats {
namespace {

constexpr size_t kMostKeys = 16;  // a pickle may be nested without end

// Breadth first, so that the shortest way is found; values that are shared are seen once.
class Search {
 public:
  explicit Search(std::string_view storage) : storage_(storage) {}

  std::string run(const PickleValue& root) {
    visit(&root, kNoParent, "");
    for (size_t at = 0; at < found_.size(); ++at) {
      const PickleValue& value = *found_[at].value;
      if (is_wanted(value)) return keys_to(at);
      for (const auto& [key, inner] : value.pairs) visit(inner, at, text_of_key(*key));
      for (size_t i = 0; i < value.items.size(); ++i) {
        visit(value.items[i], at, std::to_string(i));
      }
      if (value.kind == PickleKind::object) visit_call(value, at);
    }
    return "";
  }

 private:
  static constexpr size_t kNoParent = static_cast<size_t>(-1);
  struct Place {
    const PickleValue* value;
    size_t parent;
    std::string key;  // "": the same tensor as its parent
  };

  static std::string text_of_key(const PickleValue& key) {
    return key.kind == PickleKind::integer ? std::to_string(key.integer) : key.text;
  }

  void visit(const PickleValue* value, size_t parent, std::string key) {
    if (value == nullptr || !seen_.insert(value).second) return;
    found_.push_back({value, parent, std::move(key)});
  }

  // The arguments from which a tensor is made count as the tensor.
  void visit_call(const PickleValue& object, size_t at) {
    if (object.arguments != nullptr) {
      for (const auto* given : object.arguments->items) visit(given, at, "");
    }
    if (object.state == nullptr) return;
    for (const auto& [key, inner] : object.state->pairs) visit(inner, at, text_of_key(*key));
  }

  bool is_wanted(const PickleValue& value) const {
    if (value.kind != PickleKind::persistent || value.arguments == nullptr) return false;
    const auto& id = value.arguments->items;
    return id.size() >= 3 && id[2]->text == storage_;
  }

  std::string keys_to(size_t at) const {
    std::vector<std::string_view> keys;
    for (; at != kNoParent && keys.size() < kMostKeys; at = found_[at].parent) {
      if (!found_[at].key.empty()) keys.push_back(found_[at].key);
    }
    std::ranges::reverse(keys);
    return fmt::format("{}", fmt::join(keys, "."));
  }

  std::string_view storage_;
  std::deque<Place> found_;
  std::unordered_set<const PickleValue*> seen_;
};

}  // namespace

std::string storage_owner(const PickleValue& root, std::string_view storage) {
  return Search(storage).run(root);
}

}  // namespace fullshard::formats
