// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/fp32_state.h"

#include <optional>

#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/weights/source_sums.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/tensor_io/read_tensor.h"

namespace fullshard {

std::map<std::string, at::Tensor> fp32_state(const std::string& folder, const std::string& tag) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(folder, {.tag = tag});
  formats::check_input(checkpoint.weights != nullptr,
                       "{}: holds the states of an optimizer and no weights", folder);
  std::map<std::string, at::Tensor> state;
  std::vector<std::string> names;
  for (const auto& tensor : checkpoint.distinct_weights()) {
    names.push_back(tensor.name);
    at::Tensor values = tensor_io::read_tensor(*checkpoint.weights, tensor.name);
    if (at::isFloatingType(values.scalar_type())) values = values.to(at::kFloat);
    state[tensor.name] = std::move(values);
  }
  formats::check_sums_of(*checkpoint.weights, names);
  for (const auto& [second, first] : checkpoint.tied) {
    const auto found = state.find(first);
    if (found != state.end()) state.emplace(second, found->second);
  }
  return state;
}

void load_fp32(ShardedModel& model, const std::string& folder, const LoadOptions& options) {
  std::optional<stored::AnyCheckpoint> checkpoint;
  engine::throw_alike(checkpoint::patient_ranks(model.mesh()), engine::error_of([&] {
                        checkpoint = stored::open_any(folder);
                        formats::check_input(checkpoint->weights != nullptr,
                                             "{}: holds the states of an optimizer and no weights",
                                             folder);
                      }),
                      "load_fp32");
  load_weights(*checkpoint->weights, model, options);
}

void save_model(const std::string& folder, ShardedModel& model, const SaveOptions& options) {
  engine::throw_alike(checkpoint::patient_ranks(model.mesh()), engine::error_of([&] {
                        const bool writes = model.mesh().world().rank() == 0;
                        if (writes) formats::make_folder_tree(folder);
                      }),
                      "save_model");
  save_weights(folder, model, options);
}

}  // namespace fullshard
