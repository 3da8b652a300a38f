// SPDX-License-Identifier: Apache-2.0
// fullshard config [check|explain|convert|template] …
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/config/convert.h"
#include "fullshard/config/plan.h"

namespace CLI {
class App;
}

namespace fullshard::cli {

class ConfigCommand {
 public:
  explicit ConfigCommand(CLI::App& app);
  ConfigCommand(const ConfigCommand&) = delete;  // the parser writes into it
  ConfigCommand& operator=(const ConfigCommand&) = delete;

  bool was_chosen() const;
  int run() const;  // returns the exit status

 private:
  void add_common(CLI::App& command);
  int check() const;
  int explain_file() const;
  int convert_file() const;
  config::Conversion convert(const Plan& plan) const;
  int write_template() const;
  int ask() const;
  PlanReading read(bool assumes_one_rank) const;

  CLI::App* command_;
  CLI::App* check_;
  CLI::App* explain_;
  CLI::App* convert_;
  CLI::App* support_;
  CLI::App* template_;
  std::string file_;
  std::vector<std::string> overrides_;
  int64_t ranks_ = 0;
  int64_t hidden_size_ = 0;
  std::string device_;
  std::string target_;
  std::string accelerate_type_ = "FSDP";
  std::string output_;
  bool json_ = false;
  bool allow_unknown_ = false;
  bool overwrite_ = false;
  std::string template_name_;
  bool is_plain_ = false;
};

}  // namespace fullshard::cli
