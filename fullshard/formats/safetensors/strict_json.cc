// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/safetensors/strict_json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "fullshard/formats/input_error.h"

namespace fullshard::formats {
namespace {

using nlohmann::json;

constexpr int kMostDepth = 8;

// Sees every event of the parser; it keeps no values.
class Rules {
 public:
  explicit Rules(const std::string& where) : where_(where) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      check_input(depth < kMostDepth, "{}: is nested more than {} deep", where_, kMostDepth);
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      check_input(keys_.back().insert(key).second, "{}: has the key '{}' twice", where_, key);
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& where) {
  Rules rules(where);
  try {
    return json::parse(text, std::ref(rules));
  } catch (const json::parse_error& error) {
    fail_input("{}: is not JSON at its byte {}", where, error.byte);
  } catch (const json::exception&) {
    fail_input("{}: holds a number that no computer keeps", where);
  }
}

}  // namespace fullshard::formats
