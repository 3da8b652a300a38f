// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/beside_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors/strict_json.h"
#include "fullshard/formats/torch/optimizer_file.h"
#include "fullshard/formats/torch/saved_progress.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::stored {
namespace {

// The first of these files that exists; empty: none.
std::string find_beside(const std::string& folder, std::initializer_list<const char*> names) {
  for (const auto* name : names) {
    const std::string path = fmt::format("{}/{}", folder, name);
    if (base::is_file(path)) return path;
  }
  return "";
}

// Accelerate writes one per rank.
int64_t num_accelerate_ranks(const std::string& folder) {
  const auto names = formats::names_in(folder);
  return std::ranges::count_if(names,
                               [](const auto& name) { return name.starts_with("random_states_"); });
}

}  // namespace

std::string kind_of_weights_folder(const std::string& folder) {
  if (base::is_file(folder + "/trainer_state.json")) return "Trainer";
  return num_accelerate_ranks(folder) > 0 ? "Accelerate" : "Hugging Face";
}

void add_trainer_state(AnyCheckpoint& opened, const std::string& folder) {
  const std::string path = folder + "/trainer_state.json";
  if (!base::is_file(path)) return;
  const formats::FileHandle file = formats::FileHandle::open(path);
  const auto state = formats::parse_strict_json(file.read_text(0, file.size(), "text"), path);
  const auto step = state.find("global_step");
  formats::check_input(
      step != state.end() && step->is_number_integer() && step->get<int64_t>() >= 0,
      "{}: has no global_step", path);
  opened.num_steps = step->get<int64_t>();
  opened.facts.emplace_back("step", std::to_string(*opened.num_steps));
}

std::vector<std::string> add_optimizer_file(AnyCheckpoint& opened, const std::string& folder) {
  const std::string path = find_beside(folder, {"optimizer.bin", "optimizer.pt"});
  if (path.empty()) return {};
  const auto optimizer = std::make_shared<const formats::OptimizerFile>(path);
  opened.optimizer_steps = optimizer->num_steps();
  if (optimizer->has_names()) {
    for (const auto& state : optimizer->states()) {
      opened.states.push_back({state, optimizer->state(state)});
    }
  } else {
    opened.numbered = optimizer;
    opened.facts.emplace_back("optimizer",
                              fmt::format("numbers its parameters, in groups of {}",
                                          fmt::join(optimizer->group_sizes(), " and ")));
  }
  return {path};
}

std::vector<std::string> add_saved_progress(AnyCheckpoint& opened, const std::string& folder) {
  std::vector<std::string> files;
  if (const auto path = find_beside(folder, {"scheduler.pt", "scheduler.bin"}); !path.empty()) {
    files.push_back(path);
    opened.scheduler_steps = formats::schedule_steps(formats::TorchFile(path).root(), path);
    // Accelerate advances a schedule once per rank in every step.
    const auto done = opened.optimizer_steps;
    const int64_t ranks = num_accelerate_ranks(folder);
    if (done && ranks > 1 && opened.scheduler_steps == *done * ranks) {
      opened.scheduler_steps = done;
    }
  }
  if (const auto path = find_beside(folder, {"scaler.pt"}); !path.empty()) {
    files.push_back(path);
    opened.loss_scale = formats::grad_scaler_loss_scale(formats::TorchFile(path).root(), path);
  }
  return files;
}

}  // namespace fullshard::stored
