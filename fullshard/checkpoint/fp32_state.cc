#include "fullshard/checkpoint/fp32_state.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/tensor_io/read_tensor.h"

namespace fullshard {

std::map<std::string, at::Tensor> fp32_state(const std::string& folder, const std::string& tag) {
  const AnyCheckpoint checkpoint = open_any(folder, {.tag = tag});
  check_input(checkpoint.weights != nullptr, "{}: holds the states of an optimizer and no weights",
              folder);
  std::map<std::string, at::Tensor> state;
  for (const auto& tensor : checkpoint.distinct_weights()) {
    at::Tensor values = read_tensor(*checkpoint.weights, tensor.name);
    if (at::isFloatingType(values.scalar_type())) values = values.to(at::kFloat);
    state[tensor.name] = std::move(values);
  }
  for (const auto& [second, first] : checkpoint.tied) {
    const auto found = state.find(first);
    if (found != state.end()) state.emplace(second, found->second);
  }
  return state;
}

void load_fp32(ShardedModel& model, const std::string& folder, const LoadOptions& options) {
  std::optional<AnyCheckpoint> checkpoint;
  throw_alike(patient_ranks(model.mesh()), error_of([&] {
                checkpoint = open_any(folder);
                check_input(checkpoint->weights != nullptr,
                            "{}: holds the states of an optimizer and no weights", folder);
              }),
              "load_fp32");
  load_weights(*checkpoint->weights, model, options);
}

void save_model(const std::string& folder, ShardedModel& model, const SaveOptions& options) {
  throw_alike(patient_ranks(model.mesh()), error_of([&] {
                const bool writes = model.mesh().world().rank() == 0;
                check_input(!writes || ::mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST,
                            "{}: cannot be made: {}", folder, std::strerror(errno));
              }),
              "save_model");
  save_weights(folder, model, options);
}

}  // namespace fullshard
