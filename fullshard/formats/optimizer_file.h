// The state of an optimizer in one file of torch.save, as Accelerate and the Trainer leave it
// beside gathered weights: {"state": {parameter: {"exp_avg": …, "step": …}}, …}.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/formats/tensor_source.h"
#include "fullshard/formats/torch_file.h"

namespace fullshard {

class OptimizerFile {
 public:
  explicit OptimizerFile(const std::string& path);

  // False: parameters are numbered (torch's own state_dict()), and which is which is not said.
  bool has_names() const { return has_names_; }
  // "exp_avg", …: tensors as large as their parameters. Empty without names.
  const std::vector<std::string>& states() const { return states_; }
  std::unique_ptr<TensorSource> state(const std::string& name) const;
  std::optional<int64_t> num_steps() const { return num_steps_; }

 private:
  std::shared_ptr<const TorchFile> file_;
  bool has_names_ = true;
  std::vector<std::string> states_;
  std::optional<int64_t> num_steps_;
};

// A whole number, or a tensor that holds one. Nothing: neither.
std::optional<int64_t> count_in(const TorchFile& file, const PickleValue& value,
                                const std::string& where);

}  // namespace fullshard
