// SPDX-License-Identifier: Apache-2.0
// The state of an optimizer in one file of torch.save, as Accelerate and the Trainer leave it
// next to gathered weights:
//
//     {"state": {parameter: {"exp_avg": …, "step": …}}, "param_groups": [{"params": […], …}]}
//
// A parameter is a name, or its number: 0, 1, … through all groups, in the order in which they were
// given to the optimizer. Optimizers that were given names store them next to the numbers
// (param_names).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/torch/torch_file.h"

namespace fullshard::formats {

class OptimizerFile {
 public:
  explicit OptimizerFile(const std::string& path);

  const std::string& path() const { return file_->path(); }
  // False: parameters are numbered and their names are not stored.
  bool has_names() const { return has_names_; }
  // How many parameters each group has; empty if the file does not store that.
  const std::vector<int64_t>& group_sizes() const { return group_sizes_; }
  // "exp_avg", …: tensors as large as their parameters.
  const std::vector<std::string>& states() const { return states_; }
  // The values for every parameter under its name; without names under "0", "1", …
  std::unique_ptr<TensorSource> state(const std::string& name) const;
  // The same with names[i] for number i.
  std::unique_ptr<TensorSource> state(const std::string& name,
                                      const std::vector<std::string>& names) const;
  std::optional<int64_t> num_steps() const { return num_steps_; }

 private:
  void read_groups();
  void find_states();

  std::shared_ptr<const TorchFile> file_;
  bool has_names_ = true;
  std::vector<int64_t> group_sizes_;
  std::vector<std::string> names_;  // by number, if the file stores them
  std::vector<std::string> states_;
  std::optional<int64_t> num_steps_;
};

// A whole number, or a tensor that holds one. Nothing: neither.
std::optional<int64_t> count_in(const TorchFile& file, const PickleValue& value,
                                const std::string& where);

}  // namespace fullshard::formats
