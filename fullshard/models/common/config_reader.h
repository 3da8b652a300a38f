// SPDX-License-Identifier: Apache-2.0
// Reads a Hugging Face config.json strictly: every key is read, known to change nothing, or refused
// by name. Problems are collected, so that one error tells all of them.
//
//   ConfigReader reader(config, "model/config.json", "LlamaForCausalLM");
//   settings.width = reader.positive("hidden_size", 4096);
//   reader.finish();
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::models {

// A value as messages show it: printable, not long, and without what is nested in it.
std::string shown_value(const nlohmann::json& value);

// Borrows the configuration. A getter that meets a value it cannot use notes a problem and gives
// `otherwise`, so the values count only after finish(). A key that is null is absent, but for
// optional_integer. `otherwise` is the default of the original's configuration class.
class ConfigReader {
 public:
  // `where` is the file, `model` the architecture, both for the error.
  ConfigReader(const nlohmann::json& config, std::string where, std::string model);

  int64_t integer(std::string_view key, int64_t otherwise);
  int64_t positive(std::string_view key, int64_t otherwise);  // an integer above 0
  // The size of something that will be built: from 1 to `most`, and `stored` where a file of
  // weights tells.
  int64_t size(std::string_view key, int64_t otherwise, int64_t most,
               std::optional<int64_t> stored = std::nullopt);
  // null is a value here: it stands for nothing, whatever `otherwise` is.
  std::optional<int64_t> optional_integer(std::string_view key, std::optional<int64_t> otherwise);
  double number(std::string_view key, double otherwise);
  double at_least(double least, std::string_view key, double otherwise);
  double probability(std::string_view key, double otherwise);  // 0 <= value < 1
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, const std::string& otherwise);
  std::vector<std::string> texts(std::string_view key);  // a list of texts; absent: empty

  bool has(std::string_view key) const;  // present and not null
  // The first of the names that the file has, else the last: {"n_embd", "hidden_size"}.
  std::string_view one_of(std::initializer_list<std::string_view> names) const;

  // An object inside: its keys are told as "key.inner". Absent: an empty one. The section shares
  // the list of problems; call its refuse_unread() when it is read.
  ConfigReader section(std::string_view key);

  // The key has one value that is supported; any other is a problem.
  void supports_only(std::string_view key, const nlohmann::json& value);
  // Keys of this architecture that change nothing in training. Those of every model are known.
  void harmless(std::initializer_list<std::string_view> keys);
  // A problem of the value of `key`: "sliding_window is 7: " and the reason.
  void refuse(std::string_view key, const std::string& reason);

  void refuse_unread();
  // Refuses what was not read, then throws Error (kind input) if there were problems.
  void finish();

 private:
  const nlohmann::json* find(std::string_view key);  // null and absent are nullptr
  std::string path(std::string_view key) const;

  std::shared_ptr<const nlohmann::json> owned_;  // of an absent section
  const nlohmann::json* config_;
  std::string where_;
  std::string model_;
  std::string prefix_;
  std::set<std::string, std::less<>> read_;
  std::shared_ptr<std::vector<std::string>> problems_;
};

// The text as transformers writes it: sorted keys, two spaces, ASCII, a newline at the end. All
// keys stay as they are but those that say what the model is.
std::string model_config_text(const nlohmann::json& config, const std::string& architecture,
                              const std::string& model_type);

}  // namespace fullshard::models
