// SPDX-License-Identifier: Apache-2.0
// What the names mean that torch.distributed.checkpoint gives to the tensors of a training program:
// {"model": ..., "optim": {"state": ...}}, flattened.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace fullshard::formats {

struct StateDictNames {
  // What a tensor is called in the file, by its name in the model.
  using InFile = std::map<std::string, std::string>;

  InFile weights = {};                        // under "model", "module" or "state_dict"
  std::map<std::string, InFile> states = {};  // "exp_avg": optim.state.NAME.exp_avg, by NAME
  std::string step = {};                      // in the file: one of the optimizer's counts
  InFile others = {};

  // `keys` are the parts of the name, of which each may hold dots of its own.
  void add(const std::string& name, const std::vector<std::string>& keys);
  // When all were added.
  void take_step();
};

// At every dot.
std::vector<std::string> keys_of_name(const std::string& name);

}  // namespace fullshard::formats
