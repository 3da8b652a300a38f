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

// Checks the text before it is parsed. This is not a callback of the parser: with one, the parser
// searches all members of an object after each of them.
class Rules final : public json::json_sax_t {
 public:
  explicit Rules(const std::string& where) : where_(where) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return enter();
  }
  bool key(string_t& name) override {
    check_input(keys_.back().insert(name).second, "{}: has the key '{}' twice", where_, name);
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return leave();
  }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  // The parser itself reports the error.
  bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

 private:
  bool enter() {
    check_input(depth_++ < kMostDepth, "{}: is nested more than {} deep", where_, kMostDepth);
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  const std::string& where_;
  int depth_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& where) {
  Rules rules(where);
  json::sax_parse(text, &rules);
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    fail_input("{}: invalid JSON at byte {}", where, error.byte);
  } catch (const json::exception&) {
    fail_input("{}: number out of range", where);
  }
}

}  // namespace fullshard::formats
