// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/rank_environment.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/launch/cores.h"

namespace fullshard::launch {
namespace {

bool names_a_rank(std::string_view variable) {
  static constexpr std::string_view kNames[] = {
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
      "NODE_RANK",   "ROLE_RANK",   "ROLE_NAME",  "ROLE_WORLD_SIZE",  "GROUP_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "JOB_SECRET", "JOB_SECRET_FILE",  "LOCAL_SIZE",
      "MEETING"};
  std::string_view name = variable.substr(0, variable.find('='));
  if (name.starts_with("TORCHELASTIC_")) return true;
  constexpr std::string_view kOwn = "FULLSHARD_";
  if (name.starts_with(kOwn)) name.remove_prefix(kOwn.size());
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

class Variables {
 public:
  explicit Variables(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  template <class Value>
  void set(std::string_view name, const Value& value) {
    std::erase_if(texts_, [&](const std::string& text) {
      return text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=';
    });
    texts_.push_back(fmt::format("{}={}", name, value));
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
};

Variables common_variables(const LaunchOptions& options, const Meeting& meeting) {
  Variables variables(inherited_environment());
  if (!is_set("OMP_NUM_THREADS")) {
    variables.set("OMP_NUM_THREADS", std::max(1, num_usable_cores() / options.ranks));
  }
  if (!is_set("TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
    variables.set("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1);
  }
  if (!options.devices.empty()) {
    variables.set("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(options.devices, ",")));
  }
  variables.set("WORLD_SIZE", world_size_of(options));
  variables.set("ROLE_WORLD_SIZE", world_size_of(options));
  variables.set("LOCAL_WORLD_SIZE", options.ranks);
  variables.set("GROUP_WORLD_SIZE", options.nodes);
  variables.set("GROUP_RANK", options.node_rank);
  variables.set("NODE_RANK", options.node_rank);
  variables.set("ROLE_NAME", "default");
  variables.set("MASTER_ADDR", meeting.address);
  variables.set("MASTER_PORT", meeting.port);
  variables.set("TORCHELASTIC_RESTART_COUNT", meeting.restart);
  variables.set("TORCHELASTIC_MAX_RESTARTS", options.max_restarts);
  variables.set("TORCHELASTIC_RUN_ID", "none");
  variables.set("TORCHELASTIC_USE_AGENT_STORE", "False");  // rank 0 serves the store
  if (!meeting.secret.empty()) variables.set("FULLSHARD_JOB_SECRET", meeting.secret);
  if (!meeting.notice.empty()) variables.set("FULLSHARD_MEETING", meeting.notice);
  return variables;
}

}  // namespace

std::vector<std::string> inherited_environment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!names_a_rank(*variable)) variables.emplace_back(*variable);
  }
  return variables;
}

int first_rank_of(const LaunchOptions& options) {
  return options.first_rank.value_or(options.node_rank * options.ranks);
}

int world_size_of(const LaunchOptions& options) {
  return options.world_size.value_or(options.nodes * options.ranks);
}

std::vector<std::vector<std::string>> rank_environments(const LaunchOptions& options,
                                                        const Meeting& meeting) {
  const Variables common = common_variables(options, meeting);
  std::vector<std::vector<std::string>> environments;
  for (int local = 0; local < options.ranks; ++local) {
    Variables variables = common;
    variables.set("RANK", first_rank_of(options) + local);
    variables.set("ROLE_RANK", first_rank_of(options) + local);
    variables.set("LOCAL_RANK", local);
    environments.push_back(variables.texts());
  }
  return environments;
}

}  // namespace fullshard::launch
