// SPDX-License-Identifier: Apache-2.0
// The meaning of the names that torch.distributed.checkpoint gives to the tensors of a training
// program: {"model": ..., "optim": {"state": ...}}, flattened.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fullshard::formats {

struct StateDictNames {
  // The names of tensors in the file, by their names in the model.
  using InFile = std::map<std::string, std::string>;

  InFile weights = {};                        // under "model", "module" or "state_dict"
  std::map<std::string, InFile> states = {};  // "exp_avg": optim.state.NAME.exp_avg, by NAME
  std::string step = {};                      // one of the optimizer's step counts, in the file
  InFile others = {};

  // `keys` are the parts of the name, each of which may contain dots.
  void add(const std::string& name, const std::vector<std::string>& keys);
  // Call when all names have been added.
  void take_step();
};

// Splits a name at every dot.
std::vector<std::string> keys_of_name(const std::string& name);

}  // namespace fullshard::formats
