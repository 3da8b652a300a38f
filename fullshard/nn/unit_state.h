// SPDX-License-Identifier: Apache-2.0
// What a unit keeps beside its parameters: who surrounds its forward, in which dtypes it computes,
// and what becomes of its activations.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>

#include "fullshard/nn/forward_hooks.h"
#include "fullshard/nn/product_precision.h"

namespace fullshard::nn {

class SavedTensorPacker;

// The dtypes of a unit's forward; absent: tensors come and go as they are.
struct ForwardCasts {
  std::optional<at::ScalarType> inputs{};   // of floating tensors among the arguments
  std::optional<at::ScalarType> outputs{};  // and in the result

  bool any() const { return inputs.has_value() || outputs.has_value(); }
};

// Modules as long as the vocabulary. Each is a unit of its own only where it is large
// (engine/plan/wrap.h), and what is special about it is known: an embedding's backward reads no
// values of its parameters, only shapes; a head's backward begins where its forward ends.
enum class VocabularyPart { none, embedding, head };

// A mix-in, found by dynamic_cast<UnitState*>(module). It belongs to its module; the hooks belong
// to the engine, which takes them back (set_hooks(nullptr)) before it goes. Not thread-safe: set
// before the first forward, or between steps.
class UnitState {
 public:
  UnitState() = default;
  virtual ~UnitState() = default;

  // A copy of a module is not sharded because the original is: hooks, casts, precisions and packers
  // are never copied, and an assignment keeps those of the target.
  UnitState(const UnitState& other) : UnitState() { *this = other; }
  UnitState& operator=(const UnitState& other) {
    set_recompute(other.recompute_);
    set_vocabulary_part(other.vocabulary_part_);
    return *this;
  }

  // The name that wrapping by class knows, such as "Block".
  virtual std::string class_name() const;
  // The module's forward calls the hooks: what FULLSHARD_UNIT and Wrap make does, what a plain
  // TORCH_MODULE over a Unit makes does not.
  virtual bool runs_hooks() const { return false; }

  ForwardHooks* hooks() const { return hooks_; }
  void set_hooks(ForwardHooks* hooks) { hooks_ = hooks; }

  // Arguments are cast before the hooks see them, the result after.
  const ForwardCasts& casts() const { return casts_; }
  void set_casts(const ForwardCasts& casts) {
    casts_ = casts;
    has_casts_ = casts.any();
  }

  // How the layers in its forward multiply; units nested in it say so for themselves.
  ProductPrecision products() const { return products_; }
  void set_products(ProductPrecision products) { products_ = products; }

  // Whether activations are thrown away in forward and computed again in backward.
  bool recompute() const { return recompute_; }
  void set_recompute(bool recompute) { recompute_ = recompute; }

  // Said by the model that makes the module. Nothing else may read the parameters of one that is
  // said to be a part: a table that also serves as the head is none.
  VocabularyPart vocabulary_part() const { return vocabulary_part_; }
  void set_vocabulary_part(VocabularyPart part) { vocabulary_part_ = part; }

  // What becomes of the tensors that autograd saves in forward; nullptr: the graph holds them.
  SavedTensorPacker* saved_tensors() const { return saved_tensors_.get(); }
  void set_saved_tensors(std::shared_ptr<SavedTensorPacker> packer) {
    saved_tensors_ = std::move(packer);
  }

  // Nothing surrounds the forward: the common case of a module that is not sharded.
  bool is_plain() const {
    return !(static_cast<int>(hooks_ != nullptr) | int{recompute_} | int{has_casts_} |
             static_cast<int>(saved_tensors_ != nullptr) |
             static_cast<int>(products_ != ProductPrecision::operands));
  }

 private:
  ForwardHooks* hooks_ = nullptr;
  std::shared_ptr<SavedTensorPacker> saved_tensors_;
  ForwardCasts casts_;
  bool has_casts_ = false;
  bool recompute_ = false;
  ProductPrecision products_ = ProductPrecision::operands;
  VocabularyPart vocabulary_part_ = VocabularyPart::none;
};

}  // namespace fullshard::nn
