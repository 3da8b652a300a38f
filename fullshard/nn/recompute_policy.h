// SPDX-License-Identifier: Apache-2.0
// The one switch of recomputation (activation checkpointing): which modules throw their activations
// away in forward and compute them again in backward.
//
//   recompute_units(*model, RecomputePolicy::classes({"Block"}));
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard {

// What a policy is asked about: a module made with FULLSHARD_UNIT or Wrap. Whether it is also a
// unit of a sharded model does not matter.
struct RecomputeCandidate {
  std::string path;        // "blocks.3", empty for the root
  std::string class_name;  // "Block"
};

class RecomputePolicy {
 public:
  using Predicate = std::function<bool(const RecomputeCandidate&)>;

  static RecomputePolicy none();
  // The outermost ones below the root, without embedding and head. The root itself and the head
  // would keep nothing less, their backward begins where their forward ends; an embedding keeps
  // nothing but the tokens.
  static RecomputePolicy all();
  static RecomputePolicy classes(std::vector<std::string> names);
  static RecomputePolicy predicate(Predicate predicate);

  bool is_none() const { return kind_ == Kind::none; }
  std::string text() const;  // "classes Block, Head"; predicates all read alike

 private:
  friend class RecomputeSwitch;
  enum class Kind { none, all, classes, predicate };
  Kind kind_ = Kind::none;
  std::vector<std::string> names_;
  Predicate predicate_;
};

// Switches the chosen modules on and gives their number; others stay as they are (set_recompute).
// Errors: a class name that no module has (lists those there are), a class that is no unit.
int recompute_units(torch::nn::Module& model, const RecomputePolicy& policy);

}  // namespace fullshard
