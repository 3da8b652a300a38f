// SPDX-License-Identifier: Apache-2.0
// Which modules become units, and which parameters each of them holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/engine/plan/group_spec.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/nn/unit_state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard {

// What a policy is asked about.
struct WrapCandidate {
  std::string path;        // "blocks.3"
  std::string class_name;  // "Block"
  int64_t numel = 0;       // parameters below it that no nested unit holds
};

// Under `marked` and `classes` an embedding or a head (VocabularyPart) is a unit as soon as it has
// as many elements as the largest other unit, and at least this many: what is smaller is not worth
// collectives of its own. The other policies decide themselves, and a class that is named is a unit
// whatever its size. docs/schedule.md, "Embedding and head".
inline constexpr int64_t kSmallestVocabularyUnit = int64_t{1} << 20;

// The root is a unit under every policy; it holds what no other unit does.
class WrapPolicy {
 public:
  using Predicate = std::function<bool(const WrapCandidate&)>;

  // Every module made with FULLSHARD_UNIT or Wrap; embedding and head where they are large.
  static WrapPolicy marked();
  static WrapPolicy classes(std::vector<std::string> names);
  static WrapPolicy min_size(int64_t numel = 100'000'000);  // at or above it
  static WrapPolicy none();
  static WrapPolicy predicate(Predicate predicate);

  std::string text() const;  // "classes Block, Head"; predicates all read alike

 private:
  friend class UnitPlanner;
  enum class Kind { marked, classes, min_size, none, predicate };
  Kind kind_ = Kind::marked;
  std::vector<std::string> names_;
  int64_t min_numel_ = 0;
  Predicate predicate_;
};

struct UnitPlan {
  std::string path;
  std::string class_name;
  nn::UnitState* state = nullptr;
  int parent = -1;  // index of the enclosing unit
  std::vector<engine::NamedParameter> parameters;
  std::vector<nn::NamedTensor> buffers;  // full names
  std::vector<nn::UnitState*> inner;     // marked modules below that are no units themselves
  std::vector<int> lenders;  // units that hold tied parameters which modules below here use

  int64_t numel() const;
  int64_t largest_tensor() const;  // elements
};

struct WrapPlan {
  std::vector<UnitPlan> units;  // parents before children; the root first
  // What ignored modules hold and no unit does: whole on every rank. Full names.
  std::vector<engine::NamedParameter> ignored_parameters;
  std::vector<nn::NamedTensor> ignored_buffers;
  std::vector<std::string> deferred_buffers;  // zeros, until a file gives them values
  std::vector<std::string> warnings;

  // One line per unit: path, class, parameters, bytes; children indented.
  std::string tree() const;
};

// `ignored` is a regular expression over module paths (whole path); what lies below a match is left
// alone. Errors: a module that is sharded already, a class name that no module has (lists those
// there are), a chosen module that is no unit, a root that is none, a unit that does not run its
// hooks. With `advises` the plan warns of units so large that more of them would save memory.
WrapPlan plan_units(torch::nn::Module& root, const WrapPolicy& policy, const std::string& ignored,
                    bool advises = true);

}  // namespace fullshard
